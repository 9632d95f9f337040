-- additive
-- What was said in conversations with models that remember nothing themselves, so that any process on this database goes on with them. In a
-- file there is nothing of it. Times are milliseconds since 1970.

CREATE TABLE conversations (
  id_hash    TEXT PRIMARY KEY,                 -- HMAC of agent, caller and session id
  agent      TEXT NOT NULL,                    -- HMAC of the server, the tool and its address
  owner      TEXT NOT NULL,                    -- HMAC of agent and caller
  version    BIGINT NOT NULL,                  -- one more with each exchange, and never one of before again
  sealed     BLOB NOT NULL,                    -- AES-256-GCM: the last exchanges, JSON
  used_at    BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
);
CREATE INDEX conversations_by_owner ON conversations (owner, used_at);
CREATE INDEX conversations_by_agent ON conversations (agent, used_at);
CREATE INDEX conversations_by_expiry ON conversations (expires_at);
