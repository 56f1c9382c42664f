CREATE TABLE scaling_groups (
  name TEXT PRIMARY KEY,
  consecutive_failures INTEGER NOT NULL DEFAULT 0,
  backoff_until_ms INTEGER NOT NULL DEFAULT 0,
  last_scale_up_ms INTEGER NOT NULL DEFAULT 0,
  last_scale_down_ms INTEGER NOT NULL DEFAULT 0,
  quota_exceeded_until_ms INTEGER NOT NULL DEFAULT 0,
  quota_reason TEXT NOT NULL DEFAULT '',
  quota_blocks INTEGER NOT NULL DEFAULT 0,
  failure_reason TEXT NOT NULL DEFAULT '',
  updated_at_ms INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE slices (
  slice_id TEXT PRIMARY KEY,
  scale_group TEXT NOT NULL,
  lifecycle TEXT NOT NULL,
  worker_ids TEXT NOT NULL DEFAULT '[]',
  created_at_ms INTEGER NOT NULL,
  error_message TEXT NOT NULL DEFAULT '',
  manual INTEGER NOT NULL DEFAULT 0,
  updated_at_ms INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX slices_group ON slices(scale_group, lifecycle);
