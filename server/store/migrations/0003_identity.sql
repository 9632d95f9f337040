-- People, programs and keys: browser logins by code, registered clients, passkeys, invited users, keys for machines.
-- A scope ceiling of "*" is everything there is. Times are milliseconds since 1970. Hashes and MACs are lower-case hex.

ALTER TABLE users ADD COLUMN tools TEXT NOT NULL DEFAULT '';        -- selection of tools at most; empty: all
ALTER TABLE users ADD COLUMN expires_at BIGINT;                     -- an invited user's last moment; NULL: none
ALTER TABLE users ADD COLUMN invited_by TEXT;                       -- user id, or local:<uid>
ALTER TABLE users ADD COLUMN last_seen_at BIGINT;                   -- last sign-in
UPDATE users SET scope = '*' WHERE role = 'owner';                  -- states: unclaimed | invited | enabled | disabled | locked

ALTER TABLE clients ADD COLUMN client_uri TEXT NOT NULL DEFAULT '';
ALTER TABLE clients ADD COLUMN jwks TEXT;                           -- public keys of private_key_jwt, as JSON
ALTER TABLE clients ADD COLUMN jwks_uri TEXT;
ALTER TABLE clients ADD COLUMN metadata TEXT NOT NULL DEFAULT '{}'; -- what else was registered, echoed to its owner
ALTER TABLE clients ADD COLUMN registration_hash TEXT;              -- SHA-256 of the registration access token (RFC 7592)
ALTER TABLE clients ADD COLUMN network TEXT;                        -- who registered it over the network
ALTER TABLE clients ADD COLUMN authorized_at BIGINT;                -- when somebody first let it in; NULL: never
ALTER TABLE clients ADD COLUMN server TEXT;                         -- the one [[server]] that it is for; NULL: any
ALTER TABLE clients ADD COLUMN introspects INTEGER NOT NULL DEFAULT 0;  -- may ask what a token is worth (RFC 7662)
UPDATE clients SET scope = '*' WHERE kind = 'builtin';              -- kinds: builtin | registered | dynamic | document
CREATE INDEX clients_by_registration ON clients (kind, created_at);

CREATE TABLE client_documents (                -- Client ID Metadata Documents: what a client says of itself at its own address
  url         TEXT PRIMARY KEY,                -- the client id
  body        TEXT,                            -- as it was accepted; NULL: it never was
  source      TEXT NOT NULL,                   -- network | pinned
  fetched_at  BIGINT NOT NULL,                 -- the last try
  fresh_until BIGINT NOT NULL,
  stale_until BIGINT NOT NULL,                 -- used until then where its address cannot be reached
  problem     TEXT NOT NULL DEFAULT ''         -- why the last try brought nothing
);
CREATE INDEX client_documents_by_age ON client_documents (stale_until);

CREATE TABLE client_assertions (               -- private_key_jwt: each assertion counts once
  client_id  TEXT NOT NULL,
  jti_hash   TEXT NOT NULL,                    -- SHA-256
  expires_at BIGINT NOT NULL,
  PRIMARY KEY (client_id, jti_hash)
);
CREATE INDEX client_assertions_by_expiry ON client_assertions (expires_at);

CREATE TABLE authorization_codes (
  id           TEXT PRIMARY KEY,
  code_hash    TEXT NOT NULL UNIQUE,           -- SHA-256
  client_id    TEXT NOT NULL REFERENCES clients (id) ON DELETE CASCADE,
  subject      TEXT NOT NULL,                  -- the user who agreed
  server       TEXT NOT NULL,
  origin       TEXT NOT NULL,
  redirect_uri TEXT NOT NULL,
  challenge    TEXT NOT NULL,                  -- S256
  dpop_jkt     TEXT,                           -- thumbprint of the key that alone may redeem it (RFC 9449 §10)
  scope        TEXT NOT NULL,
  ip           TEXT NOT NULL,
  user_agent   TEXT NOT NULL,
  auth_time    BIGINT NOT NULL,
  state        TEXT NOT NULL,                  -- live | used
  grant_id     TEXT,                           -- set when used: a replay ends it
  created_at   BIGINT NOT NULL,
  expires_at   BIGINT NOT NULL
);
CREATE INDEX authorization_codes_by_expiry ON authorization_codes (expires_at);

CREATE TABLE pushed_requests (                 -- RFC 9126
  uri_hash   TEXT PRIMARY KEY,                 -- SHA-256
  client_id  TEXT NOT NULL REFERENCES clients (id) ON DELETE CASCADE,
  parameters TEXT NOT NULL,                    -- a query string; holds no secret
  used_at    BIGINT,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
);
CREATE INDEX pushed_requests_by_expiry ON pushed_requests (expires_at);

CREATE TABLE consents (                        -- what a person said yes to, so that the same is not asked every day
  user_id       TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
  client_id     TEXT NOT NULL REFERENCES clients (id) ON DELETE CASCADE,
  redirect_host TEXT NOT NULL,                 -- scheme and host, without a loopback port
  server        TEXT NOT NULL,
  scope         TEXT NOT NULL,
  client_hash   TEXT NOT NULL,                 -- of the client's redirect addresses: another set is asked about anew
  created_at    BIGINT NOT NULL,
  expires_at    BIGINT NOT NULL,
  PRIMARY KEY (user_id, client_id, redirect_host, server)
);
CREATE INDEX consents_by_expiry ON consents (expires_at);

ALTER TABLE grants ADD COLUMN how TEXT NOT NULL DEFAULT 'device';   -- device | code | client_credentials
ALTER TABLE grants ADD COLUMN redirect_host TEXT NOT NULL DEFAULT '';
ALTER TABLE grants ADD COLUMN last_ip TEXT NOT NULL DEFAULT '';     -- of the last redemption or refresh
ALTER TABLE grants ADD COLUMN jkt TEXT;                             -- thumbprint of the key without which a public client cannot refresh
CREATE INDEX grants_by_client ON grants (client_id);

CREATE TABLE passkeys (
  credential_id TEXT PRIMARY KEY,              -- base64url
  user_id       TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
  rp_id         TEXT NOT NULL,                 -- the host that it was made for: it works nowhere else
  public_key    TEXT NOT NULL,                 -- COSE, base64url
  sign_count    BIGINT NOT NULL,               -- the authenticator's own; 0: it counts nothing
  name          TEXT NOT NULL,
  created_at    BIGINT NOT NULL,
  last_used_at  BIGINT
);
CREATE INDEX passkeys_by_user ON passkeys (user_id);

CREATE TABLE passkey_challenges (              -- those that were answered: each counts once. Open ones need no row
  challenge_hash TEXT PRIMARY KEY,             -- SHA-256
  used_at        BIGINT NOT NULL,
  expires_at     BIGINT NOT NULL
);
CREATE INDEX passkey_challenges_by_expiry ON passkey_challenges (expires_at);

CREATE TABLE user_identities (                 -- who somebody is at an upstream provider
  provider     TEXT NOT NULL,
  subject      TEXT NOT NULL,
  user_id      TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
  label        TEXT NOT NULL,                  -- as the provider calls them, for people
  created_at   BIGINT NOT NULL,
  last_used_at BIGINT,
  PRIMARY KEY (provider, subject)
);

CREATE TABLE upstream_logins (                 -- a sign-in that is under way at a provider
  state_hash   TEXT PRIMARY KEY,               -- SHA-256
  provider     TEXT NOT NULL,
  browser_hash TEXT NOT NULL,
  sealed       TEXT NOT NULL,                  -- verifier, nonce, where to go then: AES-GCM under a subkey, base64
  used_at      BIGINT,
  expires_at   BIGINT NOT NULL
);
CREATE INDEX upstream_logins_by_expiry ON upstream_logins (expires_at);

CREATE TABLE api_keys (
  id           TEXT PRIMARY KEY,               -- key_…; for Basic also the user name
  name         TEXT NOT NULL,
  user_id      TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,   -- whose ceiling and state bound it
  key_hash     TEXT NOT NULL UNIQUE,           -- SHA-256
  hint         TEXT NOT NULL,                  -- its last four letters, to tell keys apart
  server       TEXT,                           -- NULL: every one of this process
  scope        TEXT NOT NULL,
  tools        TEXT NOT NULL DEFAULT '',
  created_by   TEXT NOT NULL,
  created_at   BIGINT NOT NULL,
  expires_at   BIGINT,
  last_used_at BIGINT,
  last_used_ip TEXT,
  revoked_at   BIGINT
);
CREATE INDEX api_keys_by_user ON api_keys (user_id);

CREATE TABLE refresh_keys (                    -- what refresh tokens are proven with
  version        BIGINT PRIMARY KEY,           -- v of a token rt<v>; the newest writes
  sealed_secret  TEXT NOT NULL,                -- AES-GCM under a subkey of the key file, base64; empty: destroyed
  created_at     BIGINT NOT NULL,
  accepted_until BIGINT                        -- when its last login is over; NULL: it was not replaced
);

ALTER TABLE audit ADD COLUMN mac TEXT NOT NULL DEFAULT '';          -- HMAC over the row and the mac before it
