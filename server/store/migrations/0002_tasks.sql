-- Tasks: calls that outlive the request which began them. What a caller or a tool said is sealed (AES-256-GCM under a subkey of
-- the key file, bound to its row and column): BLOB here is what PostgreSQL spells BYTEA.

CREATE TABLE tasks (
  id_hash        TEXT PRIMARY KEY,             -- SHA-256: the id alone lets a caller without a login come back to the task
  sealed_id      BLOB NOT NULL,
  sealed_message BLOB,                         -- the last word about how it goes
  server         TEXT NOT NULL,                -- name of the [[server]]
  tool           TEXT NOT NULL,
  caller         TEXT NOT NULL,                -- kind:subject:client; all callers without a login are "anonymous"
  face           TEXT NOT NULL,                -- the form of tasks that its caller speaks: extension | core | wasmagent
  state          TEXT NOT NULL,                -- working | input_required | completed | failed | cancelled
  tool_failed    INTEGER NOT NULL,             -- completed, with a result that says the tool failed
  replays        INTEGER NOT NULL,             -- may be run again if whoever runs it is gone: it has a checkpoint, or only waited
  runs           INTEGER NOT NULL,             -- begun anew without getting any further: bounded, so that it cannot go on for ever
  version        BIGINT NOT NULL,              -- grows with every change that can be seen
  created_at     BIGINT NOT NULL,
  updated_at     BIGINT NOT NULL,
  expires_at     BIGINT NOT NULL,
  owner          TEXT,                         -- boot id of the process that runs it; NULL: nobody does
  lease_until    BIGINT NOT NULL,
  fence          BIGINT NOT NULL
);
CREATE INDEX tasks_by_caller ON tasks (caller, server, created_at, id_hash);
CREATE INDEX tasks_by_expiry ON tasks (expires_at);
CREATE INDEX tasks_running ON tasks (lease_until, caller) WHERE state IN ('working', 'input_required');

CREATE TABLE task_parts (                      -- apart from the row above, which is written often and stays small
  id_hash TEXT NOT NULL REFERENCES tasks (id_hash) ON DELETE CASCADE,
  name    TEXT NOT NULL,                       -- order | checkpoint | events | ending
  sealed  BLOB NOT NULL,
  PRIMARY KEY (id_hash, name)
);

CREATE TABLE task_questions (
  id_hash  TEXT NOT NULL REFERENCES tasks (id_hash) ON DELETE CASCADE,
  name     TEXT NOT NULL,                      -- the author's word for it, unlike any other of this task's whole life
  question BLOB NOT NULL,
  answer   BLOB,                               -- NULL: outstanding
  PRIMARY KEY (id_hash, name)
);
