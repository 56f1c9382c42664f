DROP INDEX tasks_pending;
