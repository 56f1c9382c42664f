CREATE TABLE endpoints (
  endpoint_id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  address TEXT NOT NULL,
  task_id TEXT NOT NULL REFERENCES tasks(task_id) ON DELETE CASCADE,
  attempt_uid TEXT NOT NULL,
  metadata_json TEXT NOT NULL DEFAULT '{}',
  registered_at_ms INTEGER NOT NULL,
  lease_deadline_ms INTEGER,
  lease_ms INTEGER NOT NULL DEFAULT 0,
  access INTEGER
);
CREATE INDEX endpoints_name ON endpoints(name);
CREATE INDEX endpoints_task ON endpoints(task_id);
