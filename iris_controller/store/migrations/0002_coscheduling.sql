ALTER TABLE job_config ADD COLUMN has_coscheduling INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job_config ADD COLUMN coscheduling_group_by TEXT NOT NULL DEFAULT '';
