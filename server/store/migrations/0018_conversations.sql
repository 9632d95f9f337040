-- What was said in conversations with models that remember nothing themselves, where several processes serve. Nothing is written here where
-- there is one. Times are milliseconds since 1970.

CREATE TABLE conversations (
  id_hash    TEXT PRIMARY KEY,                 -- HMAC of agent, caller and session id
  agent      TEXT NOT NULL,                    -- HMAC of the server, the tool and its address
  owner      TEXT NOT NULL,                    -- HMAC of agent and caller
  version    BIGINT NOT NULL,                  -- from 1, one more with each exchange
  sealed     BLOB NOT NULL,                    -- AES-256-GCM: the last exchanges, JSON
  used_at    BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
);
CREATE INDEX conversations_by_owner ON conversations (owner, used_at);
CREATE INDEX conversations_by_agent ON conversations (agent, used_at);
CREATE INDEX conversations_by_expiry ON conversations (expires_at);
