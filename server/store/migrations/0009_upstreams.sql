-- Upstream MCP servers behind agents of kind "mcp": what was accepted of each, and the logins at them.
-- Times are milliseconds since 1970. `agent` is its `id` in the settings; empty where it has none.

CREATE TABLE upstreams (                       -- those that have been met: what one offers first counts once
  server TEXT NOT NULL,                        -- name of a [[server]]
  agent  TEXT NOT NULL,
  source TEXT NOT NULL,                        -- SHA-256 of where it is, by the settings: at another place it is another
  met_at BIGINT NOT NULL,
  PRIMARY KEY (server, agent)
);

CREATE TABLE upstream_pins (                   -- definitions as somebody accepted them: whatever differs is not offered
  server      TEXT NOT NULL,
  agent       TEXT NOT NULL,
  kind        TEXT NOT NULL,                   -- tool | prompt | template
  name        TEXT NOT NULL,                   -- the upstream's own
  digest      TEXT NOT NULL,                   -- SHA-256 of the canonical JSON, lower-case hex
  definition  TEXT NOT NULL,                   -- that JSON, to show what changed; of a large one its beginning
  accepted_at BIGINT NOT NULL,
  accepted_by TEXT NOT NULL,                   -- local:<uid>; settings: what it offered first, by `trust`
  PRIMARY KEY (server, agent, kind, name)
);

CREATE TABLE upstream_tokens (                 -- logins at upstreams
  server      TEXT NOT NULL,
  agent       TEXT NOT NULL,
  person      TEXT NOT NULL,                   -- a user's id; empty: the server's own
  user_id     TEXT REFERENCES users (id) ON DELETE CASCADE,   -- the same; NULL: the server's own
  sealed      TEXT NOT NULL,                   -- tokens, and what it takes to refresh them: AES-GCM under a subkey, base64
  login_id    TEXT NOT NULL,                   -- another with every login, the same through refreshes
  version     BIGINT NOT NULL,                 -- grows with every refresh
  obtained_at BIGINT NOT NULL,                 -- the login, not the refresh
  obtained_by TEXT NOT NULL,
  PRIMARY KEY (server, agent, person)
);

CREATE TABLE upstream_clients (                -- who this server is at their authorization servers, where it registered itself
  server TEXT NOT NULL,
  agent  TEXT NOT NULL,
  sealed TEXT NOT NULL,                        -- issuer, redirect address, client id and secret: AES-GCM under a subkey, base64
  PRIMARY KEY (server, agent)
);

CREATE TABLE upstream_trips (                  -- people on their way to connect an account
  state_hash   TEXT PRIMARY KEY,               -- SHA-256
  server       TEXT NOT NULL,
  agent        TEXT NOT NULL,
  user_id      TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
  browser_hash TEXT NOT NULL,
  sealed       TEXT NOT NULL,                  -- verifier, redirect address, client: AES-GCM under a subkey, base64
  used_at      BIGINT,
  expires_at   BIGINT NOT NULL
);
CREATE INDEX upstream_trips_by_expiry ON upstream_trips (expires_at);
