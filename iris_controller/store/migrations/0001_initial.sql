CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;

CREATE TABLE jobs (
  job_id TEXT PRIMARY KEY,
  user_id TEXT NOT NULL,
  submitting_user TEXT NOT NULL DEFAULT '',
  parent_job_id TEXT REFERENCES jobs(job_id) ON DELETE CASCADE,
  root_job_id TEXT NOT NULL,
  depth INTEGER NOT NULL,
  state INTEGER NOT NULL,
  submitted_at_ms INTEGER NOT NULL,
  root_submitted_at_ms INTEGER NOT NULL,
  started_at_ms INTEGER,
  finished_at_ms INTEGER,
  scheduling_deadline_epoch_ms INTEGER,
  error TEXT,
  exit_code INTEGER,
  num_tasks INTEGER NOT NULL,
  name TEXT NOT NULL DEFAULT '',
  backend_id TEXT NOT NULL DEFAULT '',
  cluster TEXT NOT NULL DEFAULT 'local',
  request_proto BLOB NOT NULL DEFAULT x'',
  priority_insertion INTEGER NOT NULL DEFAULT 0,
  task_counts_json TEXT NOT NULL DEFAULT '[]',
  failure_count INTEGER NOT NULL DEFAULT 0,
  preemption_count INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX jobs_parent ON jobs(parent_job_id);
CREATE INDEX jobs_state ON jobs(state, submitted_at_ms DESC);
CREATE INDEX jobs_depth_state ON jobs(depth, state, submitted_at_ms DESC);
CREATE INDEX jobs_user ON jobs(user_id, state);
CREATE INDEX jobs_root ON jobs(root_job_id, depth);
CREATE UNIQUE INDEX jobs_submitted ON jobs(submitted_at_ms);
CREATE INDEX jobs_name ON jobs(name);

CREATE TABLE job_config (
  job_id TEXT PRIMARY KEY REFERENCES jobs(job_id) ON DELETE CASCADE,
  name TEXT NOT NULL DEFAULT '',
  res_cpu_millicores INTEGER NOT NULL,
  res_memory_bytes INTEGER NOT NULL,
  res_disk_bytes INTEGER NOT NULL,
  res_device_json TEXT,
  constraints_json TEXT,
  max_task_failures INTEGER NOT NULL DEFAULT 0,
  max_retries_failure INTEGER NOT NULL DEFAULT 0,
  max_retries_preemption INTEGER NOT NULL DEFAULT 100,
  timeout_ms INTEGER,
  scheduling_timeout_ms INTEGER,
  entrypoint_json TEXT NOT NULL DEFAULT '{}',
  environment_json TEXT NOT NULL DEFAULT '{}',
  bundle_id TEXT NOT NULL DEFAULT '',
  ports_json TEXT NOT NULL DEFAULT '[]',
  preemption_policy INTEGER NOT NULL DEFAULT 0,
  existing_job_policy INTEGER NOT NULL DEFAULT 0,
  priority_band INTEGER NOT NULL DEFAULT 0,
  submit_argv_json TEXT NOT NULL DEFAULT '[]'
);

CREATE TABLE job_workdir_files (
  job_id TEXT NOT NULL REFERENCES jobs(job_id) ON DELETE CASCADE,
  filename TEXT NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (job_id, filename)
);

CREATE TABLE tasks (
  task_id TEXT PRIMARY KEY,
  job_id TEXT NOT NULL REFERENCES jobs(job_id) ON DELETE CASCADE,
  task_index INTEGER NOT NULL,
  state INTEGER NOT NULL,
  error TEXT,
  exit_code INTEGER,
  submitted_at_ms INTEGER NOT NULL,
  started_at_ms INTEGER,
  finished_at_ms INTEGER,
  max_retries_failure INTEGER NOT NULL DEFAULT 0,
  max_retries_preemption INTEGER NOT NULL DEFAULT 100,
  current_attempt_id INTEGER NOT NULL DEFAULT -1,
  current_attempt_uid TEXT NOT NULL DEFAULT '',
  priority_neg_depth INTEGER NOT NULL,
  priority_root_submitted_ms INTEGER NOT NULL,
  priority_insertion INTEGER NOT NULL,
  priority_band INTEGER NOT NULL DEFAULT 3,
  current_worker_id TEXT,
  current_worker_address TEXT,
  failure_count INTEGER NOT NULL DEFAULT 0,
  preemption_count INTEGER NOT NULL DEFAULT 0,
  backend_id TEXT NOT NULL DEFAULT '',
  cluster TEXT NOT NULL DEFAULT 'local',
  UNIQUE (job_id, task_index)
);
CREATE INDEX tasks_pending ON tasks(state, priority_band, priority_neg_depth, priority_root_submitted_ms, submitted_at_ms,
  priority_insertion) WHERE state = 1;
CREATE INDEX tasks_worker ON tasks(current_worker_id) WHERE current_worker_id IS NOT NULL;

CREATE TABLE task_attempts (
  task_id TEXT NOT NULL REFERENCES tasks(task_id) ON DELETE CASCADE,
  attempt_id INTEGER NOT NULL,
  attempt_uid TEXT NOT NULL UNIQUE,
  worker_id TEXT,
  state INTEGER NOT NULL,
  created_at_ms INTEGER NOT NULL,
  started_at_ms INTEGER,
  finished_at_ms INTEGER,
  exit_code INTEGER,
  error TEXT,
  terminal_reason TEXT NOT NULL DEFAULT '',
  charge INTEGER NOT NULL DEFAULT 0,
  executed INTEGER NOT NULL DEFAULT 0,
  memory_peak_bytes INTEGER NOT NULL DEFAULT 0,
  log_lines INTEGER,
  stop_reason INTEGER NOT NULL DEFAULT 0,
  backend_id TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (task_id, attempt_id)
);
CREATE INDEX task_attempts_live ON task_attempts(worker_id) WHERE finished_at_ms IS NULL;

CREATE TABLE workers (
  worker_id TEXT PRIMARY KEY,
  address TEXT NOT NULL DEFAULT '',
  md_hostname TEXT NOT NULL DEFAULT '',
  md_cpu_count INTEGER NOT NULL DEFAULT 0,
  md_memory_bytes INTEGER NOT NULL DEFAULT 0,
  md_disk_bytes INTEGER NOT NULL DEFAULT 0,
  total_cpu_millicores INTEGER NOT NULL DEFAULT 0,
  total_memory_bytes INTEGER NOT NULL DEFAULT 0,
  total_gpu_count INTEGER NOT NULL DEFAULT 0,
  total_tpu_count INTEGER NOT NULL DEFAULT 0,
  committed_cpu_millicores INTEGER NOT NULL DEFAULT 0,
  committed_mem_bytes INTEGER NOT NULL DEFAULT 0,
  committed_gpu INTEGER NOT NULL DEFAULT 0,
  committed_tpu INTEGER NOT NULL DEFAULT 0,
  device_type TEXT NOT NULL DEFAULT 'cpu',
  device_variant TEXT NOT NULL DEFAULT '',
  slice_id TEXT NOT NULL DEFAULT '',
  scale_group TEXT NOT NULL DEFAULT '',
  boot_id TEXT NOT NULL DEFAULT '',
  pid INTEGER NOT NULL DEFAULT 0,
  version TEXT NOT NULL DEFAULT '',
  release TEXT NOT NULL DEFAULT '',
  build_failures INTEGER NOT NULL DEFAULT 0,
  excluded INTEGER NOT NULL DEFAULT 0,
  metadata_proto BLOB NOT NULL DEFAULT x''
);
CREATE INDEX workers_slice ON workers(slice_id);

CREATE TABLE worker_attributes (
  worker_id TEXT NOT NULL REFERENCES workers(worker_id) ON DELETE CASCADE,
  key TEXT NOT NULL,
  value_type TEXT NOT NULL,
  str_value TEXT,
  int_value INTEGER,
  float_value REAL,
  PRIMARY KEY (worker_id, key)
);

CREATE TABLE request_ids (
  principal TEXT NOT NULL,
  request_id TEXT NOT NULL,
  method TEXT NOT NULL,
  response BLOB NOT NULL,
  created_at_ms INTEGER NOT NULL,
  PRIMARY KEY (principal, request_id)
) WITHOUT ROWID;
CREATE INDEX request_ids_age ON request_ids(created_at_ms);
