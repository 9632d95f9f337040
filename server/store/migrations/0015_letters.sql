-- What nodes that share one database tell each other. Nothing is written here where there is one. Times are milliseconds since 1970.

-- Read by every node in order, and deleted after a minute. Who writes one has the writers' turn, so numbers are committed in their order.
CREATE TABLE letters (
  seq    INTEGER PRIMARY KEY AUTOINCREMENT,
  node   TEXT NOT NULL,                        -- whose it is: a boot id
  kind   TEXT NOT NULL,
  topic  TEXT NOT NULL,                        -- what it is about: a hash, or the name of a server
  sealed BLOB NOT NULL,                        -- AES-256-GCM: it may hold what somebody answered
  at     BIGINT NOT NULL
);
CREATE INDEX letters_by_age ON letters (at);

-- Sessions of which a node that takes them up must know more than their ids say.
CREATE TABLE shared_sessions (
  id_hash    TEXT PRIMARY KEY,                 -- SHA-256
  caller     TEXT NOT NULL,
  log_level  TEXT,                             -- NULL: what it begins with
  reader     TEXT,                             -- the node at which its client reads what belongs to no request
  expires_at BIGINT NOT NULL
);
CREATE INDEX shared_sessions_by_caller ON shared_sessions (caller, expires_at);
CREATE INDEX shared_sessions_by_expiry ON shared_sessions (expires_at);

-- The resources whose changes a session wants to hear of.
CREATE TABLE session_watches (
  id_hash  TEXT NOT NULL REFERENCES shared_sessions (id_hash) ON DELETE CASCADE,
  uri_hash TEXT NOT NULL,                      -- SHA-256
  sealed   BLOB NOT NULL,
  PRIMARY KEY (id_hash, uri_hash)
);
