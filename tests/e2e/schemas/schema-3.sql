-- ostiary-key-1:09881b34097f:6mjutBhVLS60HdkmqJqNiv_cg1qlQ6er_ylcI6BbgQg
-- ost_qMjYVUvgAP7fmXPrdMBZjBXwPQoYR8VHWJ9aurRd67v0oaW7j
PRAGMA application_id = 1330861145;
BEGIN TRANSACTION;
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
INSERT INTO "api_keys" VALUES('key_5typ3sztcbk3b3aceqaq','for-tests','usr_eyie7qgqf4ezcmraehcx','eb5dee7208bc1015cf20e229e5124c0a85fb1842267d1d3bc49a3b5977958baa','aW7j',NULL,'mcp','','local:0',1795367911945,NULL,NULL,NULL,NULL);
CREATE TABLE attempts (                        -- failed or counted tries, for throttling
  bucket   TEXT NOT NULL,                      -- e.g. signin:user:usr_1, entry:session:…; never a secret
  at       BIGINT NOT NULL,
  sequence INTEGER NOT NULL,                   -- tells tries of one millisecond apart
  PRIMARY KEY (bucket, at, sequence)
);
CREATE TABLE audit (
  seq        INTEGER PRIMARY KEY AUTOINCREMENT,
  at         BIGINT NOT NULL,
  event      TEXT NOT NULL,                    -- e.g. device.approved
  actor      TEXT NOT NULL,                    -- user:…, client:…, local:<uid>, anonymous
  client_id  TEXT,
  grant_id   TEXT,
  ip         TEXT,
  user_agent TEXT,
  outcome    TEXT NOT NULL,                    -- ok | refused
  reason     TEXT NOT NULL DEFAULT ''
, mac TEXT NOT NULL DEFAULT '');
INSERT INTO "audit" VALUES(1,1795367908472,'user.added','local:setup',NULL,NULL,NULL,NULL,'ok','usr_eyie7qgqf4ezcmraehcx owner, unclaimed','88125523d05593a9feb90a14e2e71a93d031e0154d70864c4433651f93ff70b2');
INSERT INTO "audit" VALUES(2,1795367908472,'client.added','local:setup','ostiary-cli',NULL,NULL,NULL,'ok','built in','7d739a65fcf3d0c38d56f459cdef9ae16d1d432b1b428d5354b4afdc18887efa');
INSERT INTO "audit" VALUES(3,1795367908472,'key.added','local:setup',NULL,NULL,NULL,NULL,'ok','yzLQfzTDJndpILwOqOxkWFBknQS1Wk2rfPZVupb_w0E','7aae87a321ff1f7c51361815b710f193388bc42f4ce9ae6d3dd22ae657583760');
INSERT INTO "audit" VALUES(4,1795367908472,'key.added','local:setup',NULL,NULL,NULL,NULL,'ok','rt1','3e9dabe293b51a4b08a2f364ed9dc9ce5c5675435ab93f11bd60422d7a3fe808');
INSERT INTO "audit" VALUES(5,1795367909655,'client.added','local:0','a-program',NULL,NULL,NULL,'ok','','58c2571b7f7bbf56fee0ff16438d51a070480edd8681517de408987bb8a3319c');
INSERT INTO "audit" VALUES(6,1795367910792,'invite.link_made','local:0',NULL,NULL,NULL,NULL,'ok','usr_l757idj636ojdetqlqtc','fb6edee462b2ed0cd1539366b834aa3ea449cf1bbff127ced528c8fde7e7363e');
INSERT INTO "audit" VALUES(7,1795367910792,'user.invited','local:0',NULL,NULL,NULL,NULL,'ok','usr_l757idj636ojdetqlqtc ada','724bac9f12b5de5c5d4162e76230506910a348295b0c4637bf19962f0ff252fa');
INSERT INTO "audit" VALUES(8,1795367911945,'api_key.created','local:0',NULL,'key_5typ3sztcbk3b3aceqaq',NULL,NULL,'ok','','5a29f16aaa5c229e715ac8b3d193091a3e8fcdfba5a4c23d0eb2e19feb53ef2e');
INSERT INTO "audit" VALUES(9,1795367913632,'device.requested','client:ostiary-cli','ostiary-cli',NULL,'127.0.0.1','ostiary/0.1.0','ok','dev_lka3rqac4t5rtodsm6vj','0bd9d46d9748fe76cb6b808e5c859c26579f05350b0809812637c73914a45db1');
INSERT INTO "audit" VALUES(10,1795367914594,'device.approved','local:0','ostiary-cli',NULL,'127.0.0.1','ostiary/0.1.0','ok','dev_lka3rqac4t5rtodsm6vj','221c5983913c5e7541a56a4dfdbf1c05aaf84979a54783c5e8a2f0f00fba85c4');
INSERT INTO "audit" VALUES(11,1795367918690,'device.redeemed','client:ostiary-cli','ostiary-cli','grt_difyzvk2o3htmw3kjxpp','127.0.0.1','ostiary/0.1.0','ok','dev_lka3rqac4t5rtodsm6vj','c0fb20fbaee1a9be74870f62e0c3d8af648c670e6eb8a43696379d484fbdd92a');
INSERT INTO "audit" VALUES(12,1795367919718,'device.requested','client:ostiary-cli','ostiary-cli',NULL,'127.0.0.1','python-httpx2/2.16.2','ok','dev_ppeylictwoy65uoc7kvh','0bb46415fa634a84ba4f5663c66b7ee4d09651649bf8fbb954731e32fd15a4aa');
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
CREATE TABLE browser_sessions (
  id_hash      TEXT PRIMARY KEY,               -- SHA-256 of the cookie
  user_id      TEXT NOT NULL REFERENCES users (id),
  created_at   BIGINT NOT NULL,
  auth_time    BIGINT NOT NULL,
  last_used_at BIGINT NOT NULL,
  expires_at   BIGINT NOT NULL,
  ip           TEXT NOT NULL,
  user_agent   TEXT NOT NULL
);
CREATE TABLE changes (                         -- what other processes must forget; tailed by seq
  seq       INTEGER PRIMARY KEY AUTOINCREMENT,
  at        BIGINT NOT NULL,
  kind      TEXT NOT NULL,                     -- grant | user | client | key
  entity_id TEXT NOT NULL
);
INSERT INTO "changes" VALUES(1,1795367908474,'key','yzLQfzTDJndpILwOqOxkWFBknQS1Wk2rfPZVupb_w0E');
INSERT INTO "changes" VALUES(2,1795367908474,'key','rt1');
INSERT INTO "changes" VALUES(3,1795367911945,'api_key','key_5typ3sztcbk3b3aceqaq');
CREATE TABLE chores (                          -- maintenance: whoever holds the lease does it, once
  name        TEXT PRIMARY KEY,
  owner       TEXT,                            -- boot id
  lease_until BIGINT NOT NULL,
  fence       BIGINT NOT NULL,
  last_run_at BIGINT
);
INSERT INTO "chores" VALUES('sweep',NULL,0,1,1795367908630);
CREATE TABLE client_assertions (               -- private_key_jwt: each assertion counts once
  client_id  TEXT NOT NULL,
  jti_hash   TEXT NOT NULL,                    -- SHA-256
  expires_at BIGINT NOT NULL,
  PRIMARY KEY (client_id, jti_hash)
);
CREATE TABLE client_documents (                -- Client ID Metadata Documents: what a client says of itself at its own address
  url         TEXT PRIMARY KEY,                -- the client id
  body        TEXT,                            -- as it was accepted; NULL: it never was
  source      TEXT NOT NULL,                   -- network | pinned
  fetched_at  BIGINT NOT NULL,                 -- the last try
  fresh_until BIGINT NOT NULL,
  stale_until BIGINT NOT NULL,                 -- used until then where its address cannot be reached
  problem     TEXT NOT NULL DEFAULT ''         -- why the last try brought nothing
);
CREATE TABLE clients (
  id            TEXT PRIMARY KEY,
  kind          TEXT NOT NULL,                 -- builtin | registered
  name          TEXT NOT NULL,
  secret_hash   TEXT,                          -- SHA-256; NULL for public clients
  auth_method   TEXT NOT NULL,                 -- none | client_secret_basic | client_secret_post
  grant_types   TEXT NOT NULL,                 -- space separated
  redirect_uris TEXT NOT NULL,                 -- space separated
  scope         TEXT NOT NULL,                 -- ceiling, space separated
  state         TEXT NOT NULL,                 -- enabled | disabled
  created_at    BIGINT NOT NULL,
  last_used_at  BIGINT
, client_uri TEXT NOT NULL DEFAULT '', jwks TEXT, jwks_uri TEXT, metadata TEXT NOT NULL DEFAULT '{}', registration_hash TEXT, network TEXT, authorized_at BIGINT, server TEXT, introspects INTEGER NOT NULL DEFAULT 0);
INSERT INTO "clients" VALUES('ostiary-cli','builtin','Ostiary in a terminal',NULL,'none','urn:ietf:params:oauth:grant-type:device_code authorization_code refresh_token','http://127.0.0.1/callback','*','enabled',1795367908472,1795367918690,'',NULL,NULL,'{}',NULL,NULL,1795367918690,NULL,0);
INSERT INTO "clients" VALUES('a-program','registered','a program',NULL,'none','urn:ietf:params:oauth:grant-type:device_code','','*','enabled',1795367909655,NULL,'',NULL,NULL,'{}',NULL,NULL,NULL,NULL,0);
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
CREATE TABLE device_codes (
  id               TEXT PRIMARY KEY,
  device_code_hash TEXT NOT NULL UNIQUE,       -- SHA-256
  user_code_mac    TEXT NOT NULL,              -- HMAC-SHA-256 with a server key: 34 bits must not be guessable from a copy
  client_id        TEXT NOT NULL REFERENCES clients (id),
  client_name      TEXT NOT NULL,              -- as claimed by the requester, cut
  hostname         TEXT NOT NULL,              -- as claimed
  server           TEXT NOT NULL,              -- name of the [[server]] asked for
  origin           TEXT NOT NULL,              -- the name under which the login began
  scope            TEXT NOT NULL,
  ip               TEXT NOT NULL,
  network          TEXT NOT NULL,              -- what counts as one requester: IPv4 address, or IPv6 /64
  user_agent       TEXT NOT NULL,
  state            TEXT NOT NULL,              -- pending | approved | denied | used
  interval_seconds INTEGER NOT NULL,
  last_poll_at     BIGINT,
  created_at       BIGINT NOT NULL,
  expires_at       BIGINT NOT NULL,
  decided_at       BIGINT,
  decided_by       TEXT,                       -- user id, or local:<uid>
  subject          TEXT,                       -- user who granted
  granted_scope    TEXT,
  grant_id         TEXT                        -- set when used
);
INSERT INTO "device_codes" VALUES('dev_lka3rqac4t5rtodsm6vj','aae635938634766c9c45a6c12beb1d49b12dc5c14153f3803f5d74d176ac08ec','8f9a408ad0adf39cde53757a8e06f8585b93ce56cc88ad1205e01df4206402fb','ostiary-cli','ostiary 0.1.0','vm','main','http://127.0.0.1:36409','mcp','127.0.0.1','127.0.0.1','ostiary/0.1.0','used',5,NULL,1795367913632,1795368513632,1795367914594,'local:0','usr_eyie7qgqf4ezcmraehcx','mcp','grt_difyzvk2o3htmw3kjxpp');
INSERT INTO "device_codes" VALUES('dev_ppeylictwoy65uoc7kvh','c0e826761f849e9f0bf7352061af20e312157b007ac167e878c514efda2b6f6c','e25a8e3285721acdee8f5db958b8df232d224434043cb5830f64b3bb14f69b36','ostiary-cli','','','main','http://127.0.0.1:36409','mcp mcp:tools mcp:resources','127.0.0.1','127.0.0.1','python-httpx2/2.16.2','pending',5,NULL,1795367919718,1795368519718,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE grants (                          -- one row per login; its refresh chain is a counter
  id             TEXT PRIMARY KEY,             -- the token's sid
  principal_kind TEXT NOT NULL,                -- user | client | api_key | local | anonymous | payer
  subject        TEXT NOT NULL,
  client_id      TEXT NOT NULL REFERENCES clients (id),
  client_name    TEXT NOT NULL,
  hostname       TEXT NOT NULL,
  server         TEXT NOT NULL,
  origin         TEXT NOT NULL,
  scope          TEXT NOT NULL,
  ip             TEXT NOT NULL,
  user_agent     TEXT NOT NULL,
  approved_by    TEXT NOT NULL,
  auth_time      BIGINT NOT NULL,
  created_at     BIGINT NOT NULL,
  counter        BIGINT NOT NULL,              -- n of the current refresh token
  epoch          TEXT NOT NULL,                -- refresh epoch; a restored store starts a new one
  rotated_at     BIGINT NOT NULL,
  last_used_at   BIGINT NOT NULL,
  idle_until     BIGINT NOT NULL,
  expires_at     BIGINT NOT NULL,
  revoked_at     BIGINT,
  revoked_reason TEXT
, how TEXT NOT NULL DEFAULT 'device', redirect_host TEXT NOT NULL DEFAULT '', last_ip TEXT NOT NULL DEFAULT '', jkt TEXT);
INSERT INTO "grants" VALUES('grt_difyzvk2o3htmw3kjxpp','user','usr_eyie7qgqf4ezcmraehcx','ostiary-cli','ostiary 0.1.0','vm','main','http://127.0.0.1:36409','mcp','127.0.0.1','ostiary/0.1.0','local:0',1795367914594,1795367918690,1,'epo_j3l6ry2tv6ogvlzss7at',1795367918690,1795367918690,1797959918690,1797959918690,NULL,NULL,'device','','127.0.0.1',NULL);
CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
);
INSERT INTO "meta" VALUES('key_fingerprint','09881b34097f:171db143d600297d6b9bb2e17537d745');
INSERT INTO "meta" VALUES('refresh_epoch','epo_j3l6ry2tv6ogvlzss7at');
INSERT INTO "meta" VALUES('audit_chain','1:0:0::12:0bb46415fa634a84ba4f5663c66b7ee4d09651649bf8fbb954731e32fd15a4aa:0 2643615364ad436080c5a927f02db9fdfda24d6ca1cbb6617337b090cdbbe95f');
CREATE TABLE one_time_links (
  token_hash TEXT PRIMARY KEY,                 -- SHA-256
  kind       TEXT NOT NULL,                    -- claim
  user_id    TEXT NOT NULL REFERENCES users (id),
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  used_at    BIGINT
);
INSERT INTO "one_time_links" VALUES('72fccee07c105f6ce112f86b3a3793e893d11c46c65f59be31f8cca2b229aaeb','invite','usr_l757idj636ojdetqlqtc',1795367910792,1795627110792,NULL);
CREATE TABLE passkey_challenges (              -- those that were answered: each counts once. Open ones need no row
  challenge_hash TEXT PRIMARY KEY,             -- SHA-256
  used_at        BIGINT NOT NULL,
  expires_at     BIGINT NOT NULL
);
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
CREATE TABLE pushed_requests (                 -- RFC 9126
  uri_hash   TEXT PRIMARY KEY,                 -- SHA-256
  client_id  TEXT NOT NULL REFERENCES clients (id) ON DELETE CASCADE,
  parameters TEXT NOT NULL,                    -- a query string; holds no secret
  used_at    BIGINT,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
);
CREATE TABLE refresh_keys (                    -- what refresh tokens are proven with
  version        BIGINT PRIMARY KEY,           -- v of a token rt<v>; the newest writes
  sealed_secret  TEXT NOT NULL,                -- AES-GCM under a subkey of the key file, base64; empty: destroyed
  created_at     BIGINT NOT NULL,
  accepted_until BIGINT                        -- when its last login is over; NULL: it was not replaced
);
INSERT INTO "refresh_keys" VALUES(1,'/9IEPJXvG+z0mECXyV/BI7JSSSQFMV21Ajx4J7vSrFTuG0oZdSGoRlAEiyPmw8+wMZFFIReC/rF4k/mf',1795367908472,NULL);
CREATE TABLE schema_version (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL, sha256 TEXT);
INSERT INTO "schema_version" VALUES(1,'foundation',1795367908380,'4a064f00e692e7cee306e39a05459d2173edd9f0a4843ca9c04dcb8bddc9643f');
INSERT INTO "schema_version" VALUES(2,'tasks',1795367908380,'1045fa6aa41a360e1ea2da28e98c02b869acd19f3fb232c84aeda56e9f306ad5');
INSERT INTO "schema_version" VALUES(3,'identity',1795367908380,'6825c9171706ac7637beb779c2ee8b510e0c9ed7cbaa3e0e8b856462467a4457');
CREATE TABLE signing_keys (
  kid            TEXT PRIMARY KEY,
  algorithm      TEXT NOT NULL,
  public_jwk     TEXT NOT NULL,
  sealed_private TEXT NOT NULL,                -- AES-GCM under a subkey of the key file, base64
  created_at     BIGINT NOT NULL,
  signs_from     BIGINT NOT NULL,
  retires_at     BIGINT                        -- dropped from the JWKS after this
);
INSERT INTO "signing_keys" VALUES('yzLQfzTDJndpILwOqOxkWFBknQS1Wk2rfPZVupb_w0E','ES256','{"crv":"P-256","kty":"EC","x":"ongEu4pOzA01g8ftEMNmP2EPPvxDbTFzohR9RJW9Sn0","y":"7DQ_L9I16_5ZCGisQ-1ML_Ddb_dWMlSMq2iOH4OJjFk","kid":"yzLQfzTDJndpILwOqOxkWFBknQS1Wk2rfPZVupb_w0E","alg":"ES256","use":"sig"}','Pe6JuOJGgzctf/4nTgvd4ZNkYcGTmK7en3hAam9+hMSienTL2Vv0SbM7gBNcnx/IIlumSr0j1t9HvBZAK7ljkP8UE/GBeM3U0d0AXnJpW6/JXZAMKl6blIPnXUQ4Nkl5OXBADob5ukFlVgBPsKCpE+NuZjyN9+mKMtHDud6ezYu2u9qpcMoM6X9kCZZutYJnBU61Hf8AmCRvTwlBIMacpMDgU111+IL13R6H4MpRdQ2LJW3YB4ukTbheaRZzQVXQmA0GCGo/eVEK2l8K',1795367908472,1795367908472,NULL);
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
CREATE TABLE upstream_logins (                 -- a sign-in that is under way at a provider
  state_hash   TEXT PRIMARY KEY,               -- SHA-256
  provider     TEXT NOT NULL,
  browser_hash TEXT NOT NULL,
  sealed       TEXT NOT NULL,                  -- verifier, nonce, where to go then: AES-GCM under a subkey, base64
  used_at      BIGINT,
  expires_at   BIGINT NOT NULL
);
CREATE TABLE user_identities (                 -- who somebody is at an upstream provider
  provider     TEXT NOT NULL,
  subject      TEXT NOT NULL,
  user_id      TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
  label        TEXT NOT NULL,                  -- as the provider calls them, for people
  created_at   BIGINT NOT NULL,
  last_used_at BIGINT,
  PRIMARY KEY (provider, subject)
);
CREATE TABLE users (
  id              TEXT PRIMARY KEY,            -- usr_…, opaque, the token's sub
  name            TEXT NOT NULL UNIQUE,
  role            TEXT NOT NULL,               -- owner | user
  state           TEXT NOT NULL,               -- unclaimed | enabled | disabled | locked
  passphrase_hash TEXT,                        -- Argon2id, PHC string
  scope           TEXT NOT NULL,               -- ceiling, space separated
  created_at      BIGINT NOT NULL
, tools TEXT NOT NULL DEFAULT '', expires_at BIGINT, invited_by TEXT, last_seen_at BIGINT);
INSERT INTO "users" VALUES('usr_eyie7qgqf4ezcmraehcx','owner','owner','unclaimed',NULL,'*',1795367908472,'',NULL,NULL,NULL);
INSERT INTO "users" VALUES('usr_l757idj636ojdetqlqtc','ada','user','invited',NULL,'mcp mcp:tools mcp:resources',1795367910792,'',NULL,'local:0',NULL);
CREATE UNIQUE INDEX device_codes_live_user_code ON device_codes (user_code_mac) WHERE state IN ('pending', 'approved');
CREATE INDEX device_codes_by_expiry ON device_codes (expires_at);
CREATE INDEX device_codes_by_requester ON device_codes (network, created_at);
CREATE INDEX grants_by_subject ON grants (subject);
CREATE INDEX grants_by_expiry ON grants (expires_at);
CREATE INDEX browser_sessions_by_expiry ON browser_sessions (expires_at);
CREATE INDEX attempts_by_time ON attempts (at);
CREATE INDEX tasks_by_caller ON tasks (caller, server, created_at, id_hash);
CREATE INDEX tasks_by_expiry ON tasks (expires_at);
CREATE INDEX tasks_running ON tasks (lease_until, caller) WHERE state IN ('working', 'input_required');
CREATE INDEX clients_by_registration ON clients (kind, created_at);
CREATE INDEX client_documents_by_age ON client_documents (stale_until);
CREATE INDEX client_assertions_by_expiry ON client_assertions (expires_at);
CREATE INDEX authorization_codes_by_expiry ON authorization_codes (expires_at);
CREATE INDEX pushed_requests_by_expiry ON pushed_requests (expires_at);
CREATE INDEX consents_by_expiry ON consents (expires_at);
CREATE INDEX grants_by_client ON grants (client_id);
CREATE INDEX passkeys_by_user ON passkeys (user_id);
CREATE INDEX passkey_challenges_by_expiry ON passkey_challenges (expires_at);
CREATE INDEX upstream_logins_by_expiry ON upstream_logins (expires_at);
CREATE INDEX api_keys_by_user ON api_keys (user_id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('audit',12);
INSERT INTO "sqlite_sequence" VALUES('changes',3);
COMMIT;
