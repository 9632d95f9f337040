-- Sessions of the handshake era that their clients ended. Their ids say all that is needed to take them up again: these are not.

CREATE TABLE ended_sessions (
  id_hash    TEXT PRIMARY KEY,                 -- SHA-256
  expires_at BIGINT NOT NULL                   -- when the id opens nothing any more anyway
);
CREATE INDEX ended_sessions_by_expiry ON ended_sessions (expires_at);
