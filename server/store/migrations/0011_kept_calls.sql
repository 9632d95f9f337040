-- Calls that cost nothing and are not to be made twice: those with a key of their caller's, and those of tools with `dedupe`. What costs
-- something is in `charges`. Times are milliseconds since 1970.

CREATE TABLE kept_calls (
  id           TEXT PRIMARY KEY,               -- one_…
  call_key     TEXT NOT NULL UNIQUE,           -- HMAC of caller, server, tool, and the idempotency key or else the arguments
  fingerprint  TEXT NOT NULL,                  -- HMAC of server, tool and arguments
  keyed        INTEGER NOT NULL,               -- the caller gave it a key of its own
  state        TEXT NOT NULL,                  -- running | done | interrupted
  server       TEXT NOT NULL,
  tool         TEXT NOT NULL,
  caller       TEXT NOT NULL,                  -- the principal's key
  answer       BLOB,                           -- sealed; NULL: it was too large to be kept
  answer_bytes BIGINT NOT NULL DEFAULT 0,      -- 0 while it runs, and at least 1 afterwards
  owner        TEXT,                           -- boot id of the process that runs it; NULL: nobody does
  created_at   BIGINT NOT NULL,
  answered_at  BIGINT,                         -- when it ended
  expires_at   BIGINT NOT NULL
);
CREATE INDEX kept_calls_by_expiry ON kept_calls (expires_at);

-- What is kept for a caller is added up from this alone, in the order in which it makes room.
CREATE INDEX kept_calls_kept ON kept_calls (caller, answered_at, answer_bytes) WHERE answer_bytes > 0;
