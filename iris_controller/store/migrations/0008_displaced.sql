ALTER TABLE task_attempts ADD COLUMN displaces_json TEXT NOT NULL DEFAULT '[]';
