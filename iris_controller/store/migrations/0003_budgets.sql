CREATE TABLE user_budgets (
  user_id TEXT PRIMARY KEY,
  budget_limit INTEGER NOT NULL DEFAULT 0,
  max_band INTEGER NOT NULL DEFAULT 3,
  updated_at_ms INTEGER NOT NULL
);
