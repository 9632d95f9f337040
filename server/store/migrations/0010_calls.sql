-- Records of calls: who called what, for how long, and what came of it. Never an argument, never an answer. Times are milliseconds
-- since 1970.

CREATE TABLE calls (
  seq         INTEGER PRIMARY KEY,             -- in the order in which they ended, without gaps but at the beginning
  at          BIGINT NOT NULL,                 -- when it ended
  server      TEXT NOT NULL,
  tool        TEXT NOT NULL,
  outcome     TEXT NOT NULL,                   -- ok | asked | replayed | error | invalid | failed | refused | timeout | crashed | unpaid | cancelled
  reason      TEXT NOT NULL DEFAULT '',        -- why it failed, in words
  ms          REAL NOT NULL,
  kind        TEXT NOT NULL,                   -- of caller
  subject     TEXT NOT NULL,
  person      TEXT NOT NULL,                   -- what they were called then; '': nobody that has a name
  client_id   TEXT,
  program     TEXT NOT NULL,                   -- what it was called then, or the key
  grant_id    TEXT,
  call_id     TEXT NOT NULL,
  revision    TEXT NOT NULL,                   -- of the protocol
  is_task     INTEGER NOT NULL,
  price       TEXT,                            -- the version of its price
  asked       BIGINT,                          -- bytes of its parameters; NULL: not known
  answered    BIGINT,                          -- bytes of its answer
  passed_over INTEGER NOT NULL DEFAULT 0       -- calls that ended since the row before, and are counted alone
);
CREATE INDEX calls_by_age ON calls (at);

CREATE TABLE call_hours (                      -- every call is counted here, also one that has no row
  hour      BIGINT NOT NULL,                   -- when it began
  server    TEXT NOT NULL,
  tool      TEXT NOT NULL,
  caller    TEXT NOT NULL,                     -- the principal's key; '': everybody beyond so many in an hour
  outcome   TEXT NOT NULL,
  kind      TEXT NOT NULL,
  subject   TEXT NOT NULL,
  person    TEXT NOT NULL,
  program   TEXT NOT NULL,
  count     BIGINT NOT NULL,
  ms        REAL NOT NULL,                     -- all together
  -- How many took at most 1, 2, 5, 10, 20, 50, 100, 200, 500 ms, 1, 2, 5, 10, 30 s, 1, 5 minutes, and longer.
  d0  BIGINT NOT NULL, d1  BIGINT NOT NULL, d2  BIGINT NOT NULL, d3  BIGINT NOT NULL, d4  BIGINT NOT NULL, d5  BIGINT NOT NULL,
  d6  BIGINT NOT NULL, d7  BIGINT NOT NULL, d8  BIGINT NOT NULL, d9  BIGINT NOT NULL, d10 BIGINT NOT NULL, d11 BIGINT NOT NULL,
  d12 BIGINT NOT NULL, d13 BIGINT NOT NULL, d14 BIGINT NOT NULL, d15 BIGINT NOT NULL, d16 BIGINT NOT NULL,
  PRIMARY KEY (hour, server, tool, caller, outcome)
);
