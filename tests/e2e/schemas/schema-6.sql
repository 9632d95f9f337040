-- ostiary-key-1:df323a3b5994:Qy3l3S29mrGvOa20OphRmTn8kQK8gxWUKIU8uzWtY6Y
-- ost_vsyvnbkXeOGF9jtRcWBrOETmhyVVE2XDShvsI9hJQ283BFnP1
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
INSERT INTO "api_keys" VALUES('key_qcawiafabk47o2m7k3lo','for-tests','usr_o6g54e573vbiuz42jesq','b0115a624d822ce671c038eda4d342dd1cf4c5051f9f68aa635f656e971b57ca','FnP1',NULL,'mcp','','local:0',1795369047014,NULL,NULL,NULL,NULL);
CREATE TABLE attempts (                        -- failed or counted tries, for throttling
  bucket   TEXT NOT NULL,                      -- e.g. signin:user:usr_1, entry:session:…; never a secret
  at       BIGINT NOT NULL,
  sequence INTEGER NOT NULL,                   -- tells tries of one millisecond apart
  PRIMARY KEY (bucket, at, sequence)
);
INSERT INTO "attempts" VALUES('device:around 127.0.0.0/24',1795369047357,0);
INSERT INTO "attempts" VALUES('device:around 127.0.0.0/24',1795369052653,0);
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
INSERT INTO "audit" VALUES(1,1795369046349,'user.added','local:setup',NULL,NULL,NULL,NULL,'ok','usr_o6g54e573vbiuz42jesq owner, unclaimed','e4212bfaaea9d059918da557f59840b78ef4a52429358ac661622ddcbd321dc9',NULL,NULL);
INSERT INTO "audit" VALUES(2,1795369046349,'client.added','local:setup','ostiary-cli',NULL,NULL,NULL,'ok','built in','41cf5ff0d7842807306e6277c022b8250712e97a806351ac2865373ba876abcf',NULL,NULL);
INSERT INTO "audit" VALUES(3,1795369046349,'key.added','local:setup',NULL,NULL,NULL,NULL,'ok','2Nnkf9eUnOkq6bvyR7KgDZ7Y1mQaB0eX0KO6-aGJmUo','d31af2760c2e0b05e48ae3c5145988c887d77367f0749d844c9d3dcbfbeeb017',NULL,NULL);
INSERT INTO "audit" VALUES(4,1795369046349,'key.added','local:setup',NULL,NULL,NULL,NULL,'ok','rt1','d633ffb21c15453f1ae438fcac1d6ae42d182348504b8b1e3bb390e52db2229a',NULL,NULL);
INSERT INTO "audit" VALUES(5,1795369046595,'client.added','local:0','a-program',NULL,NULL,NULL,'ok','','3463d498701f36bfb8c0463fed667f184a84a4b7e7aaed689061b3dce1fcd583',NULL,NULL);
INSERT INTO "audit" VALUES(6,1795369046802,'invite.link_made','local:0',NULL,NULL,NULL,NULL,'ok','usr_knm3v7tye5abyavkdhij','25e2b950d7826343bae4f30e842d45e759269a235ffc1d5e839d55a7331e90fa',NULL,NULL);
INSERT INTO "audit" VALUES(7,1795369046802,'user.invited','local:0',NULL,NULL,NULL,NULL,'ok','usr_knm3v7tye5abyavkdhij ada','4d9b40d9344dc7d6d0be8040007bf97c2896a0b5b6989b29aa51f7342c0782b8',NULL,NULL);
INSERT INTO "audit" VALUES(8,1795369047014,'api_key.created','local:0',NULL,'key_qcawiafabk47o2m7k3lo',NULL,NULL,'ok','','8927c2152739d35f9d18a13a5d3374b01b6deb2e551190f1e4630c2571a67a5c',NULL,NULL);
INSERT INTO "audit" VALUES(9,1795369047357,'device.requested','client:ostiary-cli','ostiary-cli',NULL,'127.0.0.1','ostiary/0.1.0','ok','dev_qxpoajbqcmjqcnmlr3g6','09a13a24f68250aa2a1d49a3d5d3d4773e764514bda4493537409987b13d57b0',NULL,NULL);
INSERT INTO "audit" VALUES(10,1795369047583,'device.approved','local:0','ostiary-cli',NULL,'127.0.0.1','ostiary/0.1.0','ok','dev_qxpoajbqcmjqcnmlr3g6','f59941dd6cd3886894334b8c27ea3bcdf395eac53be3c5bdb8df070aef56aac0',NULL,NULL);
INSERT INTO "audit" VALUES(11,1795369052380,'device.redeemed','client:ostiary-cli','ostiary-cli','grt_vtln2a7cs6iwzukrenyd','127.0.0.1','ostiary/0.1.0','ok','dev_qxpoajbqcmjqcnmlr3g6','cbeecc66083f5801eb0bf2c5b320068511f18dfb67c2ae96a4175495e2345ba7',NULL,NULL);
INSERT INTO "audit" VALUES(12,1795369052653,'device.requested','client:ostiary-cli','ostiary-cli',NULL,'127.0.0.1','python-httpx2/2.16.2','ok','dev_aztrrokudkbngpeoum2h','617ae4d442ec6ef3d3b92334a909a4f6c32335288867bd6ac230cdb80c34df00',NULL,NULL);
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
INSERT INTO "changes" VALUES(1,1795369046350,'key','2Nnkf9eUnOkq6bvyR7KgDZ7Y1mQaB0eX0KO6-aGJmUo');
INSERT INTO "changes" VALUES(2,1795369046350,'key','rt1');
INSERT INTO "changes" VALUES(3,1795369047014,'api_key','key_qcawiafabk47o2m7k3lo');
CREATE TABLE chores (                          -- maintenance: whoever holds the lease does it, once
  name        TEXT PRIMARY KEY,
  owner       TEXT,                            -- boot id
  lease_until BIGINT NOT NULL,
  fence       BIGINT NOT NULL,
  last_run_at BIGINT
);
INSERT INTO "chores" VALUES('sweep',NULL,0,1,1795369046386);
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
INSERT INTO "clients" VALUES('ostiary-cli','builtin','Ostiary in a terminal',NULL,'none','urn:ietf:params:oauth:grant-type:device_code authorization_code refresh_token','http://127.0.0.1/callback','*','enabled',1795369046349,1795369052380,'',NULL,NULL,'{}',NULL,NULL,1795369052380,NULL,0);
INSERT INTO "clients" VALUES('a-program','registered','a program',NULL,'none','urn:ietf:params:oauth:grant-type:device_code','','*','enabled',1795369046595,NULL,'',NULL,NULL,'{}',NULL,NULL,NULL,NULL,0);
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
INSERT INTO "device_codes" VALUES('dev_qxpoajbqcmjqcnmlr3g6','db9db67566dc9a3d47a8a664ee2569896e8b812284cf7b463a344c9aa1af143b','917f36e34e3c0c84582119a3078827b8fe20ef763f61e33a7ae9eab23969c663','ostiary-cli','ostiary 0.1.0','vm','main','http://127.0.0.1:34625','mcp','127.0.0.1','127.0.0.1','ostiary/0.1.0','used',5,NULL,1795369047357,1795369647357,1795369047583,'local:0','usr_o6g54e573vbiuz42jesq','mcp','grt_vtln2a7cs6iwzukrenyd');
INSERT INTO "device_codes" VALUES('dev_aztrrokudkbngpeoum2h','42c7b9ccada6299d5b75d83af7a1cd40860b859ea9c7cb470fd06e4a66318bbb','264e192de577e743122776f5dd9414c4692d9d016621c386b7f777c2431ded11','ostiary-cli','','','main','http://127.0.0.1:34625','mcp mcp:tools mcp:resources','127.0.0.1','127.0.0.1','python-httpx2/2.16.2','pending',5,NULL,1795369052653,1795369652653,NULL,NULL,NULL,NULL,NULL);
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
INSERT INTO "grants" VALUES('grt_vtln2a7cs6iwzukrenyd','user','usr_o6g54e573vbiuz42jesq','ostiary-cli','ostiary 0.1.0','vm','main','http://127.0.0.1:34625','mcp','127.0.0.1','ostiary/0.1.0','local:0',1795369047583,1795369052380,1,'epo_laynxpstr5hd67rc43pc',1795369052380,1795369052380,1797961052380,1797961052380,NULL,NULL,'device','','127.0.0.1',NULL);
CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
);
INSERT INTO "meta" VALUES('key_fingerprint','df323a3b5994:54d6f4ee899f2a6ed957a3f1ffa93c73');
INSERT INTO "meta" VALUES('audit_chain','2:0::12:617ae4d442ec6ef3d3b92334a909a4f6c32335288867bd6ac230cdb80c34df00:0:0 ecd05bcf51c4a606bd20e6a1cf456f00d8cff41cc46806ad94d7d9759a3b67d6');
INSERT INTO "meta" VALUES('refresh_epoch','epo_laynxpstr5hd67rc43pc');
CREATE TABLE one_time_links (
  token_hash TEXT PRIMARY KEY,                 -- SHA-256
  kind       TEXT NOT NULL,                    -- claim
  user_id    TEXT NOT NULL REFERENCES users (id),
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  used_at    BIGINT
);
INSERT INTO "one_time_links" VALUES('63a02decf407d12b8ce54ea353ef274877b8ae0d79ec67e7d737c6abb6e86625','invite','usr_knm3v7tye5abyavkdhij',1795369046802,1795628246802,NULL);
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
INSERT INTO "refresh_keys" VALUES(1,'hGRTT/SIxHB9kZ9IAvKwYfnFeDrRDpWo1s/fPaas8fLrBE+jJ9TFi9NmRrPVfN3u3te5zfgaeQhaqEgX',1795369046349,NULL);
CREATE TABLE schema_version (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL, sha256 TEXT);
INSERT INTO "schema_version" VALUES(1,'foundation',1795369046310,'4a064f00e692e7cee306e39a05459d2173edd9f0a4843ca9c04dcb8bddc9643f');
INSERT INTO "schema_version" VALUES(2,'tasks',1795369046310,'1045fa6aa41a360e1ea2da28e98c02b869acd19f3fb232c84aeda56e9f306ad5');
INSERT INTO "schema_version" VALUES(3,'identity',1795369046310,'6825c9171706ac7637beb779c2ee8b510e0c9ed7cbaa3e0e8b856462467a4457');
INSERT INTO "schema_version" VALUES(4,'many_rows',1795369046310,'c3cb9f68bc211b400df2f79ede6ba0ca2a85f60f675ac3b94f4c0c42be350f52');
INSERT INTO "schema_version" VALUES(5,'sessions',1795369046310,'177cdcbf67c565e785b4db803171bb49446024e3d68100ee02ba6eab576b6936');
INSERT INTO "schema_version" VALUES(6,'audit',1795369046310,'c5109174576ffe856953c5ad9df0f6f1e12f7b6d4d6ab81555a4125d6dc163ad');
CREATE TABLE signing_keys (
  kid            TEXT PRIMARY KEY,
  algorithm      TEXT NOT NULL,
  public_jwk     TEXT NOT NULL,
  sealed_private TEXT NOT NULL,                -- AES-GCM under a subkey of the key file, base64
  created_at     BIGINT NOT NULL,
  signs_from     BIGINT NOT NULL,
  retires_at     BIGINT                        -- dropped from the JWKS after this
);
INSERT INTO "signing_keys" VALUES('2Nnkf9eUnOkq6bvyR7KgDZ7Y1mQaB0eX0KO6-aGJmUo','ES256','{"crv":"P-256","kty":"EC","x":"GGiqlSfeckWCf0t2qbnvEKG3dJAHI_oP3KyPPjNn_6U","y":"tiHQ1bhOJOKZ0W3P2iFePvDC8DVYCKpA74z1kKcPK5w","kid":"2Nnkf9eUnOkq6bvyR7KgDZ7Y1mQaB0eX0KO6-aGJmUo","alg":"ES256","use":"sig"}','80tVp5SJGBpyRJBhbdkvk0Z+Q869QQoIX8r4Zc4mPG4j6WqcDcmjnYzxk2REDZqoxT0oD2yzwnIkAvRNtR8zwBnJ+704JI5zB7BVWTNAeSYSQvSr7qwH7GT0LICObTK1ONfY2JVLX89oxPg5XT3O0OMpQcSa8vHYtq7mZ93YYPWlEGgfWVK32NTUn47KmHOsDdKwo3oihNBh5d/phF47qH+sDUsPqkbe686R/3kfKWKC527E5QXT2PIaW7NSH5mQxHTY80c1hU4CIW6x',1795369046349,1795369046349,NULL);
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
INSERT INTO "users" VALUES('usr_o6g54e573vbiuz42jesq','owner','owner','unclaimed',NULL,'*',1795369046349,'',NULL,NULL,NULL);
INSERT INTO "users" VALUES('usr_knm3v7tye5abyavkdhij','ada','user','invited',NULL,'mcp mcp:tools mcp:resources',1795369046802,'',NULL,'local:0',NULL);
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
