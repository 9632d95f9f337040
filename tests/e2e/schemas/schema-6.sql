-- ostiary-key-1:d04ac5d6d625:SbyVOmUmoOyw00xTFeqbbj1r_CHdjL1RvKFZ2aojrg0
-- ost_2JvTXhsy1MMmFkljvCxQJ8hDBklaeMN9HJrkvcBpiTz3pkocX
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
INSERT INTO "api_keys" VALUES('key_xzwq4vpuqsoy7cbmfaym','for-tests','usr_vqeigpi6ovntyes5dhdd','f81c591c4b2cc43ac3d8ff94bc0461fbf595e4c10e23fe4adf471af7194890c4','kocX',NULL,'mcp','','local:0',1795872242994,NULL,NULL,NULL,NULL);
CREATE TABLE attempts (                        -- failed or counted tries, for throttling
  bucket   TEXT NOT NULL,                      -- e.g. signin:user:usr_1, entry:session:…; never a secret
  at       BIGINT NOT NULL,
  sequence INTEGER NOT NULL,                   -- tells tries of one millisecond apart
  PRIMARY KEY (bucket, at, sequence)
);
INSERT INTO "attempts" VALUES('device:around 127.0.0.0/24',1795872244465,0);
INSERT INTO "attempts" VALUES('device:around 127.0.0.0/24',1795872250031,0);
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
, mac TEXT NOT NULL DEFAULT '', first BIGINT, seal  TEXT);
INSERT INTO "audit" VALUES(1,1795872240190,'user.added','local:setup',NULL,NULL,NULL,NULL,'ok','usr_vqeigpi6ovntyes5dhdd owner, unclaimed','ce9a567f02d0b76211d10102b6c4a3f8d41eedbe6480a1d15980b4b5f18f78fe',NULL,NULL);
INSERT INTO "audit" VALUES(2,1795872240190,'client.added','local:setup','ostiary-cli',NULL,NULL,NULL,'ok','built in','2fc60bd96da228309291c43795e79b27ccc18d88666ac1e0d2632830f6be684e',NULL,NULL);
INSERT INTO "audit" VALUES(3,1795872240190,'key.added','local:setup',NULL,NULL,NULL,NULL,'ok','yzRvH60QVYNaS8GP8iGZSDYKZWuhzJEA1ADNmKTaMZA','550379f8a3c8baf8ed676570385d1184b1962e896ee9136a325207fe7e5105d8',NULL,NULL);
INSERT INTO "audit" VALUES(4,1795872240190,'key.added','local:setup',NULL,NULL,NULL,NULL,'ok','rt1','470ef17e6b68235e0da575fc5033c3f9778ccd0f6d1be4d86e71821e1b85f208',NULL,NULL);
INSERT INTO "audit" VALUES(5,1795872241213,'client.added','local:0','a-program',NULL,NULL,NULL,'ok','','43feb4009a8c2052ad846e31d53777ea0b42f42d93919bb8e750eaddbf80c513',NULL,NULL);
INSERT INTO "audit" VALUES(6,1795872242028,'invite.link_made','local:0',NULL,NULL,NULL,NULL,'ok','usr_g3iu4c7xos5drgu6gfyn','db1d9bda8b03da6796ec61ffca0f04db9c31d68dcce254269ec38f6447ba4186',NULL,NULL);
INSERT INTO "audit" VALUES(7,1795872242028,'user.invited','local:0',NULL,NULL,NULL,NULL,'ok','usr_g3iu4c7xos5drgu6gfyn ada','bedd96df5abed935ae45fc522e2cc6b8c77057bb786ffd88636f1e02587b8dc0',NULL,NULL);
INSERT INTO "audit" VALUES(8,1795872242994,'api_key.created','local:0',NULL,'key_xzwq4vpuqsoy7cbmfaym',NULL,NULL,'ok','','342dbaf6d1eaa93c43e27be6ed62fac9eebb2fa5e8f6be3cb221c7d3f0693479',NULL,NULL);
INSERT INTO "audit" VALUES(9,1795872244465,'device.requested','client:ostiary-cli','ostiary-cli',NULL,'127.0.0.1','ostiary/0.1.0','ok','dev_ig7huknijlo7qgqmop3i','3c6a7c64af17b6453d453314fb56bf626d4660c6ba09b2310c87f6a468972913',NULL,NULL);
INSERT INTO "audit" VALUES(10,1795872245503,'device.approved','local:0','ostiary-cli',NULL,'127.0.0.1','ostiary/0.1.0','ok','dev_ig7huknijlo7qgqmop3i','7dd2d501d4c52d92ff0a0d4a833d2bfb31afcb639fa4dbe8574167c1dca18c5c',NULL,NULL);
INSERT INTO "audit" VALUES(11,1795872249511,'device.redeemed','client:ostiary-cli','ostiary-cli','grt_3vsrbeh44ccl3kyno4mq','127.0.0.1','ostiary/0.1.0','ok','dev_ig7huknijlo7qgqmop3i','6c66e55044576c10ad24621d2e949f508ac18ae99259d5a14c8a98a8415945d3',NULL,NULL);
INSERT INTO "audit" VALUES(12,1795872250031,'device.requested','client:ostiary-cli','ostiary-cli',NULL,'127.0.0.1','python-httpx2/2.16.2','ok','dev_lexmmfw75kilzjogzttx','dac0e009aa4e6866c07e0ea7da7fac2516ce57a2826ea7b031f9591a6072d0ef',NULL,NULL);
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
INSERT INTO "changes" VALUES(1,1795872240200,'key','yzRvH60QVYNaS8GP8iGZSDYKZWuhzJEA1ADNmKTaMZA');
INSERT INTO "changes" VALUES(2,1795872240200,'key','rt1');
INSERT INTO "changes" VALUES(3,1795872242994,'api_key','key_xzwq4vpuqsoy7cbmfaym');
CREATE TABLE chores (                          -- maintenance: whoever holds the lease does it, once
  name        TEXT PRIMARY KEY,
  owner       TEXT,                            -- boot id
  lease_until BIGINT NOT NULL,
  fence       BIGINT NOT NULL,
  last_run_at BIGINT
);
INSERT INTO "chores" VALUES('sweep',NULL,0,1,1795872240301);
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
INSERT INTO "clients" VALUES('ostiary-cli','builtin','Ostiary in a terminal',NULL,'none','urn:ietf:params:oauth:grant-type:device_code authorization_code refresh_token','http://127.0.0.1/callback','*','enabled',1795872240190,1795872249511,'',NULL,NULL,'{}',NULL,NULL,1795872249511,NULL,0);
INSERT INTO "clients" VALUES('a-program','registered','a program',NULL,'none','urn:ietf:params:oauth:grant-type:device_code','','*','enabled',1795872241213,NULL,'',NULL,NULL,'{}',NULL,NULL,NULL,NULL,0);
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
INSERT INTO "device_codes" VALUES('dev_ig7huknijlo7qgqmop3i','f1f89e0a082481330de6a523c496dce2748788bc75d0df0e9e29ffdc28befa66','d61dd568fcd382dd57c032939ff02cb2842ea8f14c42112c64a3a27c56af2e0c','ostiary-cli','ostiary 0.1.0','vm','main','http://127.0.0.1:41357','mcp','127.0.0.1','127.0.0.1','ostiary/0.1.0','used',5,NULL,1795872244465,1795872844465,1795872245503,'local:0','usr_vqeigpi6ovntyes5dhdd','mcp','grt_3vsrbeh44ccl3kyno4mq');
INSERT INTO "device_codes" VALUES('dev_lexmmfw75kilzjogzttx','589f264d3eebf27353d3d1cb3898b2348cf1ff393a84d9e8e0cd6085ec7ad3a9','aba5bed05e5a202f39c55ccfcfad704bf45037eea3f88518a086311f6a1c28bf','ostiary-cli','','','main','http://127.0.0.1:41357','mcp mcp:tools mcp:resources','127.0.0.1','127.0.0.1','python-httpx2/2.16.2','pending',5,NULL,1795872250031,1795872850031,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE ended_sessions (
  id_hash    TEXT PRIMARY KEY,                 -- SHA-256
  expires_at BIGINT NOT NULL                   -- when the id opens nothing any more anyway
);
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
INSERT INTO "grants" VALUES('grt_3vsrbeh44ccl3kyno4mq','user','usr_vqeigpi6ovntyes5dhdd','ostiary-cli','ostiary 0.1.0','vm','main','http://127.0.0.1:41357','mcp','127.0.0.1','ostiary/0.1.0','local:0',1795872245503,1795872249511,1,'epo_3yyg4cafgdzconpwdy2l',1795872249511,1795872249511,1798464249511,1798464249511,NULL,NULL,'device','','127.0.0.1',NULL);
CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
);
INSERT INTO "meta" VALUES('key_fingerprint','d04ac5d6d625:ec53a9eeda3685807d7e93de0aaf5c3a');
INSERT INTO "meta" VALUES('audit_chain','2:0::12:dac0e009aa4e6866c07e0ea7da7fac2516ce57a2826ea7b031f9591a6072d0ef:0:0 6e5abb6607cdc5c970c1dedc3ad14bc95ae2c76a437ece843562acfe0c57b865');
INSERT INTO "meta" VALUES('refresh_epoch','epo_3yyg4cafgdzconpwdy2l');
CREATE TABLE one_time_links (
  token_hash TEXT PRIMARY KEY,                 -- SHA-256
  kind       TEXT NOT NULL,                    -- claim
  user_id    TEXT NOT NULL REFERENCES users (id),
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  used_at    BIGINT
);
INSERT INTO "one_time_links" VALUES('fff9055940f5b524366d0be9a1088d8b39e963a357245c4c3df966ab7d722423','invite','usr_g3iu4c7xos5drgu6gfyn',1795872242028,1796131442028,NULL);
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
INSERT INTO "refresh_keys" VALUES(1,'6GkMsVk+/XWjhRke4LB05mIcPSydGziRiLQRXxrfN3E5PB0LY8f5J5v5K5biZ48CA3fh+9lBZ1YI3yjS',1795872240190,NULL);
CREATE TABLE schema_version (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL, sha256 TEXT);
INSERT INTO "schema_version" VALUES(1,'foundation',1795872240069,'4a064f00e692e7cee306e39a05459d2173edd9f0a4843ca9c04dcb8bddc9643f');
INSERT INTO "schema_version" VALUES(2,'tasks',1795872240069,'1045fa6aa41a360e1ea2da28e98c02b869acd19f3fb232c84aeda56e9f306ad5');
INSERT INTO "schema_version" VALUES(3,'identity',1795872240069,'6825c9171706ac7637beb779c2ee8b510e0c9ed7cbaa3e0e8b856462467a4457');
INSERT INTO "schema_version" VALUES(4,'many_rows',1795872240069,'c3cb9f68bc211b400df2f79ede6ba0ca2a85f60f675ac3b94f4c0c42be350f52');
INSERT INTO "schema_version" VALUES(5,'sessions',1795872240069,'177cdcbf67c565e785b4db803171bb49446024e3d68100ee02ba6eab576b6936');
INSERT INTO "schema_version" VALUES(6,'audit',1795872240069,'c5109174576ffe856953c5ad9df0f6f1e12f7b6d4d6ab81555a4125d6dc163ad');
CREATE TABLE signing_keys (
  kid            TEXT PRIMARY KEY,
  algorithm      TEXT NOT NULL,
  public_jwk     TEXT NOT NULL,
  sealed_private TEXT NOT NULL,                -- AES-GCM under a subkey of the key file, base64
  created_at     BIGINT NOT NULL,
  signs_from     BIGINT NOT NULL,
  retires_at     BIGINT                        -- dropped from the JWKS after this
);
INSERT INTO "signing_keys" VALUES('yzRvH60QVYNaS8GP8iGZSDYKZWuhzJEA1ADNmKTaMZA','ES256','{"crv":"P-256","kty":"EC","x":"M8gWsfrF_CLCDm0a1-4hGKy6jKLAYsfjaPMvR_fgvpc","y":"VCM1C2z2aAgLtFort_dArrMu60ZNFoB1DKBpj362XoQ","kid":"yzRvH60QVYNaS8GP8iGZSDYKZWuhzJEA1ADNmKTaMZA","alg":"ES256","use":"sig"}','aCgPCnB2KnC18MnOHbxWWAPO4Hf04WjLynAciaPXPNShlvEZKdSJxOYZcK2+lKlu5tPS3npE4fkODx4Np69dceVPuofdSGxDHmD9vZcxj9V7JIBpVjztTZEGommIfU8tf3I34+CveoYG9hkW6Px8GnuvFb+D1e4N9EKlLz/KC5uFqIej3+JtFr8ElVOD76zXOKcrCfVBDPJ3RHLn06UhEZpLPzxw8puqF4uC3Shpjg/IgltTeLqu/sOhcQgLcpR0uH8pwoD1qBLU8F6K',1795872240190,1795872240190,NULL);
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
INSERT INTO "users" VALUES('usr_vqeigpi6ovntyes5dhdd','owner','owner','unclaimed',NULL,'*',1795872240190,'',NULL,NULL,NULL);
INSERT INTO "users" VALUES('usr_g3iu4c7xos5drgu6gfyn','ada','user','invited',NULL,'mcp mcp:tools mcp:resources',1795872242028,'',NULL,'local:0',NULL);
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
CREATE INDEX clients_by_age ON clients (created_at, id);
CREATE INDEX grants_not_ended ON grants (subject, expires_at) WHERE revoked_at IS NULL;
CREATE INDEX clients_unused ON clients (created_at, id) WHERE kind = 'dynamic' AND authorized_at IS NULL;
CREATE INDEX ended_sessions_by_expiry ON ended_sessions (expires_at);
CREATE INDEX audit_refused_strangers ON audit (at)
  WHERE outcome = 'refused' AND grant_id IS NULL AND (actor = 'anonymous' OR substr(actor, 1, 7) = 'client:');
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('audit',12);
INSERT INTO "sqlite_sequence" VALUES('changes',3);
COMMIT;
