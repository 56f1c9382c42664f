ALTER TABLE task_attempts ADD COLUMN outputs_json TEXT NOT NULL DEFAULT '';
CREATE VIEW task_attempt_outputs AS
  SELECT task_id, attempt_id, outputs_json AS archive_json FROM task_attempts WHERE outputs_json <> '';
