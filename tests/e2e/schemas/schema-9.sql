-- ostiary-key-1:f484050a40ce:HD2OrVKlcv68Ny9ppnR4z5pOwlkbItbpwdsoVGcH-nI
-- ost_xmxBqBPI0tSbpRvdRPOpBVsgrMwpk2McWyXAhJVPCE92cN8yM
PRAGMA application_id = 1330861145;
BEGIN TRANSACTION;
CREATE TABLE accounts (                        -- the books' other side: what movements brought, less what they took
  id       TEXT PRIMARY KEY,                   -- chain:<network>:<asset>, revenue:<server>/<tool>, granted, paid-out, …
  currency TEXT NOT NULL,
  balance  BIGINT NOT NULL
);
INSERT INTO "accounts" VALUES('granted','USD',-1000000);
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
INSERT INTO "api_keys" VALUES('key_ipb2bgfrs44b2lpckfmm','for-tests','usr_t7fl37ofkrlug42mjmt4','358930b22699364574197dd099f3eebb57453545cd9b54da550228ee55f8ba47','N8yM',NULL,'mcp','','local:0',1795872279415,NULL,NULL,NULL,NULL);
CREATE TABLE attempts (                        -- failed or counted tries, for throttling
  bucket   TEXT NOT NULL,                      -- e.g. signin:user:usr_1, entry:session:…; never a secret
  at       BIGINT NOT NULL,
  sequence INTEGER NOT NULL,                   -- tells tries of one millisecond apart
  PRIMARY KEY (bucket, at, sequence)
);
INSERT INTO "attempts" VALUES('device:around 127.0.0.0/24',1795872282400,0);
INSERT INTO "attempts" VALUES('device:around 127.0.0.0/24',1795872288331,0);
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
INSERT INTO "audit" VALUES(1,1795872276546,'user.added','local:setup',NULL,NULL,NULL,NULL,'ok','usr_t7fl37ofkrlug42mjmt4 owner, unclaimed','4dbbb63a698745d5d3c0d5b726c127aee2fe2ed1e890a5f4727b9574a2a64369',NULL,NULL);
INSERT INTO "audit" VALUES(2,1795872276546,'client.added','local:setup','ostiary-cli',NULL,NULL,NULL,'ok','built in','1e7da2bc2effb0bb0d6e8de547da341cad8b6009a1c46ff952adf07262ca3eaa',NULL,NULL);
INSERT INTO "audit" VALUES(3,1795872276546,'key.added','local:setup',NULL,NULL,NULL,NULL,'ok','rO_ycgNE0ExKkc7RHOTNO9TvJEwLidGjge6Uf1hwkDY','e1d70570cf92de00efc6f5dbc0e3267ecf90fe500a0d0a83bb76ca19474d3bf0',NULL,NULL);
INSERT INTO "audit" VALUES(4,1795872276546,'key.added','local:setup',NULL,NULL,NULL,NULL,'ok','rt1','6975bb6ee257ea4639aa1e2fc3f93cf026c913684137eb4aed4ba9fcf0c9d035',NULL,NULL);
INSERT INTO "audit" VALUES(5,1795872277308,'client.added','local:0','a-program',NULL,NULL,NULL,'ok','','97bd8744256fec3de9e2d135efd857f5cef68fe2c52a49a85bfd0413a8229295',NULL,NULL);
INSERT INTO "audit" VALUES(6,1795872278333,'invite.link_made','local:0',NULL,NULL,NULL,NULL,'ok','usr_ictrzpraj3ptdqww63c2','ac610ce50005d20a1f4944deada4edcae2d2aa26c54da3f22e278918413cb036',NULL,NULL);
INSERT INTO "audit" VALUES(7,1795872278333,'user.invited','local:0',NULL,NULL,NULL,NULL,'ok','usr_ictrzpraj3ptdqww63c2 ada','1202d356a15834143e19093d6185e19205a6a7277bae8215f28e31417c71dfdf',NULL,NULL);
INSERT INTO "audit" VALUES(8,1795872279415,'api_key.created','local:0',NULL,'key_ipb2bgfrs44b2lpckfmm',NULL,NULL,'ok','','68ce56007e29045ebca9b60e038d7d3e45d52bf14374d43e58af0aa40eaa1dfa',NULL,NULL);
INSERT INTO "audit" VALUES(9,1795872280440,'ledger.granted','local:0',NULL,NULL,NULL,NULL,'ok','movement 1 gives user:usr_t7fl37ofkrlug42mjmt4 $1.00','1721b1d37fe8147f0825030f6fcab74d26cbacf7ec42e35cc5d46a541ed2af6e',NULL,NULL);
INSERT INTO "audit" VALUES(10,1795872282400,'device.requested','client:ostiary-cli','ostiary-cli',NULL,'127.0.0.1','ostiary/0.1.0','ok','dev_zboqqvs2pk3c7ochdfq3','dad0a0316b713b065e115d11881c7c12a6846baa1c1fe8031f54a2a879ff9544',NULL,NULL);
INSERT INTO "audit" VALUES(11,1795872283756,'device.approved','local:0','ostiary-cli',NULL,'127.0.0.1','ostiary/0.1.0','ok','dev_zboqqvs2pk3c7ochdfq3','4deb3f2665397567d8dc1951d4cde710622b5789ebe15d1757cba212fef8a106',NULL,NULL);
INSERT INTO "audit" VALUES(12,1795872287457,'device.redeemed','client:ostiary-cli','ostiary-cli','grt_bhbdyve3mnfef7gce5ek','127.0.0.1','ostiary/0.1.0','ok','dev_zboqqvs2pk3c7ochdfq3','20c9989f70e6003f5a0d7f4ff1d606fa55835ccfbd2bdc0330487d67c9b81392',NULL,NULL);
INSERT INTO "audit" VALUES(13,1795872288331,'device.requested','client:ostiary-cli','ostiary-cli',NULL,'127.0.0.1','python-httpx2/2.16.2','ok','dev_37qovepzi72miyamxp5j','e598d8199d834831eff524b9a57643074cc477513ef4a071649c30048c601070',NULL,NULL);
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
INSERT INTO "changes" VALUES(1,1795872276555,'key','rO_ycgNE0ExKkc7RHOTNO9TvJEwLidGjge6Uf1hwkDY');
INSERT INTO "changes" VALUES(2,1795872276555,'key','rt1');
INSERT INTO "changes" VALUES(3,1795872279415,'api_key','key_ipb2bgfrs44b2lpckfmm');
CREATE TABLE charges (                         -- one priced call, whichever way it is paid for
  id           TEXT PRIMARY KEY,               -- chg_…
  call_key     TEXT NOT NULL,                  -- HMAC of caller, server, tool, and the idempotency key or else the arguments
  fingerprint  TEXT NOT NULL,                  -- HMAC of server, tool and arguments
  stands       INTEGER NOT NULL,               -- 1: the same call leads here, and is not run or charged again
  keyed        INTEGER NOT NULL,               -- the caller gave it a key of its own
  state        TEXT NOT NULL,                  -- running | settling | done | owed (paid for, and not served yet)
  paid         INTEGER NOT NULL,               -- 1: the money has moved, or nothing is to be paid any more
  how          TEXT NOT NULL,                  -- balance | payment | trial | quota | pass
  server       TEXT NOT NULL,
  tool         TEXT NOT NULL,
  call_id      TEXT NOT NULL,
  caller       TEXT NOT NULL,                  -- the principal's key
  client_id    TEXT,
  grant_id     TEXT,
  wallet       TEXT,
  amount       BIGINT NOT NULL,
  currency     TEXT NOT NULL,
  price        TEXT NOT NULL,                  -- the version of the price
  spent        TEXT NOT NULL,                  -- JSON: meters that were raised for it, to be lowered if it is released
  payment_id   TEXT,
  retries_left INTEGER NOT NULL,
  answer       BLOB,                           -- sealed; until it was fully given, or as long as it may be asked for again
  owner        TEXT,                           -- boot id of the process that runs it; NULL: nobody does
  created_at   BIGINT NOT NULL,
  ended_at     BIGINT,
  answered_at  BIGINT,                         -- when the answer was fully written
  expires_at   BIGINT NOT NULL
, answer_bytes BIGINT NOT NULL DEFAULT 0);
CREATE TABLE chores (                          -- maintenance: whoever holds the lease does it, once
  name        TEXT PRIMARY KEY,
  owner       TEXT,                            -- boot id
  lease_until BIGINT NOT NULL,
  fence       BIGINT NOT NULL,
  last_run_at BIGINT
);
INSERT INTO "chores" VALUES('sweep',NULL,0,1,1795872276586);
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
INSERT INTO "clients" VALUES('ostiary-cli','builtin','Ostiary in a terminal',NULL,'none','urn:ietf:params:oauth:grant-type:device_code authorization_code refresh_token','http://127.0.0.1/callback','*','enabled',1795872276546,1795872287457,'',NULL,NULL,'{}',NULL,NULL,1795872287457,NULL,0);
INSERT INTO "clients" VALUES('a-program','registered','a program',NULL,'none','urn:ietf:params:oauth:grant-type:device_code','','*','enabled',1795872277308,NULL,'',NULL,NULL,'{}',NULL,NULL,NULL,NULL,0);
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
INSERT INTO "device_codes" VALUES('dev_zboqqvs2pk3c7ochdfq3','ec75a64dede38895e541089db210397c9c4da7306a08c4cdb2bf6c077dd54c93','f435e31d149809da72abcbd57fbf8d60c610f165f847c0e3ee689e83a35a1e23','ostiary-cli','ostiary 0.1.0','vm','main','http://127.0.0.1:39143','mcp','127.0.0.1','127.0.0.1','ostiary/0.1.0','used',5,NULL,1795872282400,1795872882400,1795872283756,'local:0','usr_t7fl37ofkrlug42mjmt4','mcp','grt_bhbdyve3mnfef7gce5ek');
INSERT INTO "device_codes" VALUES('dev_37qovepzi72miyamxp5j','926a1beb1c1e4076c91bba9fbe2ca4c14fa1ba84cfac3d58ec4d5d1bae62bd3a','c961569668bee9cd6ae58367b0ee19375030a2b8ba9a0f109212d2645f1e2e52','ostiary-cli','','','main','http://127.0.0.1:39143','mcp mcp:tools mcp:resources','127.0.0.1','127.0.0.1','python-httpx2/2.16.2','pending',5,NULL,1795872288331,1795872888331,NULL,NULL,NULL,NULL,NULL);
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
INSERT INTO "grants" VALUES('grt_bhbdyve3mnfef7gce5ek','user','usr_t7fl37ofkrlug42mjmt4','ostiary-cli','ostiary 0.1.0','vm','main','http://127.0.0.1:39143','mcp','127.0.0.1','ostiary/0.1.0','local:0',1795872283756,1795872287457,1,'epo_vlzqnjdsq3fra4ckmmuk',1795872287457,1795872287457,1798464287457,1798464287457,NULL,NULL,'device','','127.0.0.1',NULL);
CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
);
INSERT INTO "meta" VALUES('key_fingerprint','f484050a40ce:c9d8e8498a2efecfd30ef1cd2da5feba');
INSERT INTO "meta" VALUES('audit_chain','3:1:0::13:e598d8199d834831eff524b9a57643074cc477513ef4a071649c30048c601070:0:0 9c8cef3e79f3d5d747a6e2a1ff24ed5efc8b111d6c8814b5de451a4f48bf21e0');
INSERT INTO "meta" VALUES('ledger_chain','3:0:0::1:977d8617160eda4685e438c7fcd270481373094277b775fcbfc4b362fc1999d9:0:0 8addcbf437165da0cd7389a5da47ac857d7126fe727653abafc30ec8867d1e10');
INSERT INTO "meta" VALUES('refresh_epoch','epo_vlzqnjdsq3fra4ckmmuk');
CREATE TABLE meters (                          -- counts that have a limit: free calls, quotas, money spent
  subject    TEXT NOT NULL,                    -- whose, and of what: wallet:…/trial/<server>/<tool>, login:…, …
  period     TEXT NOT NULL,                    -- 2026-11, 2026-11-22, or ever
  amount     BIGINT NOT NULL CHECK (amount >= 0),
  expires_at BIGINT NOT NULL,
  PRIMARY KEY (subject, period)
);
CREATE TABLE movements (                       -- the ledger: from one account or wallet to another. Never altered, never swept
  seq        INTEGER PRIMARY KEY,              -- without gaps
  at         BIGINT NOT NULL,
  kind       TEXT NOT NULL,                    -- payment | deposit | charge | grant | voucher | refund | payout
  source     TEXT NOT NULL,                    -- wallet:<id>, or the id of an account
  target     TEXT NOT NULL,
  amount     BIGINT NOT NULL CHECK (amount > 0),
  currency   TEXT NOT NULL,
  principal  TEXT NOT NULL,                    -- whose doing it was: the caller's key, or local:<uid>
  client_id  TEXT,
  grant_id   TEXT,
  server     TEXT,
  tool       TEXT,
  call_id    TEXT,
  charge_id  TEXT,
  payment_id TEXT,
  price      TEXT,                             -- the version of the price
  refers     BIGINT,                           -- the movement that is taken back
  note       TEXT NOT NULL DEFAULT '',         -- of the owner, e.g. the reference of a pay-out
  mac        TEXT NOT NULL                     -- HMAC over the row and the mac before it
);
INSERT INTO "movements" VALUES(1,1795872280440,'grant','granted','wallet:user:usr_t7fl37ofkrlug42mjmt4',1000000,'USD','local:0',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'','977d8617160eda4685e438c7fcd270481373094277b775fcbfc4b362fc1999d9');
CREATE TABLE one_time_links (
  token_hash TEXT PRIMARY KEY,                 -- SHA-256
  kind       TEXT NOT NULL,                    -- claim
  user_id    TEXT NOT NULL REFERENCES users (id),
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  used_at    BIGINT
);
INSERT INTO "one_time_links" VALUES('281ff888839dce954d07bac334c892bdd680964d00cf947dc0dff89be0c1255d','invite','usr_ictrzpraj3ptdqww63c2',1795872278333,1796131478333,NULL);
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
CREATE TABLE payments (                        -- authorizations to move money on a chain: each counts once, here and there
  id           TEXT PRIMARY KEY,               -- pay_…
  network      TEXT NOT NULL,                  -- CAIP-2
  asset        TEXT NOT NULL,                  -- lower-case address
  payer        TEXT NOT NULL,                  -- lower-case address
  nonce        TEXT NOT NULL,                  -- lower-case hex
  proof_hash   TEXT NOT NULL,                  -- SHA-256 of the authorization with its signature: who shows it again has it
  purpose      TEXT NOT NULL,                  -- call | deposit
  fingerprint  TEXT NOT NULL,                  -- of the call; of a deposit, its wallet's
  server       TEXT NOT NULL,
  caller       TEXT NOT NULL,
  wallet       TEXT,                           -- of a deposit
  charge_id    TEXT,
  atomic       TEXT NOT NULL,                  -- the amount in atomic units of the asset
  amount       BIGINT NOT NULL,                -- the same in micros
  currency     TEXT NOT NULL,
  pay_to       TEXT NOT NULL,
  valid_before BIGINT NOT NULL,                -- seconds since 1970, as it was signed
  state        TEXT NOT NULL,                  -- reserved | verified | settling | unknown | settled | refused
  requirements TEXT NOT NULL,                  -- ours, as they were offered: JSON
  sealed       BLOB,                           -- the payment as it came: a cheque that anybody could cash until it is settled
  facilitator  TEXT,                           -- the address of the one that verified it
  tries        INTEGER NOT NULL,               -- how often it was sent to be settled
  next_try_at  BIGINT,
  problem      TEXT NOT NULL DEFAULT '',       -- of the last try, in our words
  transaction_hash TEXT,
  owner        TEXT,
  created_at   BIGINT NOT NULL,
  ended_at     BIGINT,
  expires_at   BIGINT NOT NULL,
  UNIQUE (network, asset, payer, nonce)
);
CREATE TABLE plan_grants (                     -- who is on which plan, and until when
  id         TEXT PRIMARY KEY,
  wallet     TEXT NOT NULL,
  plan       TEXT NOT NULL,                    -- name of a [[plan]]
  begins_at  BIGINT NOT NULL,
  ends_at    BIGINT,                           -- NULL: it does not end by itself
  granted_by TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  ended_at   BIGINT                            -- taken back
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
INSERT INTO "refresh_keys" VALUES(1,'QMnbrdkyOdpkjpbaE45H64YQVS3iJQDsnpYyo2cCIUlP4AFNQNaPy+/xt9hi555tzATnaWcGIjbD1nW0',1795872276546,NULL);
CREATE TABLE schema_version (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL, sha256 TEXT);
INSERT INTO "schema_version" VALUES(1,'foundation',1795872276257,'4a064f00e692e7cee306e39a05459d2173edd9f0a4843ca9c04dcb8bddc9643f');
INSERT INTO "schema_version" VALUES(2,'tasks',1795872276257,'1045fa6aa41a360e1ea2da28e98c02b869acd19f3fb232c84aeda56e9f306ad5');
INSERT INTO "schema_version" VALUES(3,'identity',1795872276257,'6825c9171706ac7637beb779c2ee8b510e0c9ed7cbaa3e0e8b856462467a4457');
INSERT INTO "schema_version" VALUES(4,'many_rows',1795872276257,'c3cb9f68bc211b400df2f79ede6ba0ca2a85f60f675ac3b94f4c0c42be350f52');
INSERT INTO "schema_version" VALUES(5,'sessions',1795872276257,'177cdcbf67c565e785b4db803171bb49446024e3d68100ee02ba6eab576b6936');
INSERT INTO "schema_version" VALUES(6,'audit',1795872276257,'c5109174576ffe856953c5ad9df0f6f1e12f7b6d4d6ab81555a4125d6dc163ad');
INSERT INTO "schema_version" VALUES(7,'money',1795872276257,'a8fd4dd38af97623c8eb80820ff28265d006993f47c82140c007941fd2b80287');
INSERT INTO "schema_version" VALUES(8,'kept_answers',1795872276257,'41515e4b6fbccf1421edb747ee92e8372be2254c4a5aa69f0cb9c3a2fe5e469b');
INSERT INTO "schema_version" VALUES(9,'upstreams',1795872276257,'b7d7306c5add83edbc32fc5a135c6bb07fad91cecd101d0875b61180e287315a');
CREATE TABLE signing_keys (
  kid            TEXT PRIMARY KEY,
  algorithm      TEXT NOT NULL,
  public_jwk     TEXT NOT NULL,
  sealed_private TEXT NOT NULL,                -- AES-GCM under a subkey of the key file, base64
  created_at     BIGINT NOT NULL,
  signs_from     BIGINT NOT NULL,
  retires_at     BIGINT                        -- dropped from the JWKS after this
);
INSERT INTO "signing_keys" VALUES('rO_ycgNE0ExKkc7RHOTNO9TvJEwLidGjge6Uf1hwkDY','ES256','{"crv":"P-256","kty":"EC","x":"AJ2CXXQ7kxKBa_4up794Cvd8HY5i1WzhYLjs89JXsXo","y":"kvLGPfqbUU3xudimY1DHtMWDOz5m_zFkei-3tZPL8RM","kid":"rO_ycgNE0ExKkc7RHOTNO9TvJEwLidGjge6Uf1hwkDY","alg":"ES256","use":"sig"}','EUtUXSILOqWrF+gVM/MJmY6G24lcVT9LIWxo5sohPB/ok9LClzbSs28xNFYS8F4vqWJSIN4FEVGaWBdUyCxreo7ftgTXtafrYMO/5jUzZriERFLQGVsCHQ/rv8HF/GvAuJhlKCQ46sVV+/8hWNiWn13oM8gm67Me8nE7SpH51tYzkApx/Iyf2Ye/2jzIliRP5mal/BN0ZrcTHqVOQcnb8zUkSENIycEmEMuaCiEkq+pV7LT+YsFU0VyFyfjT0/8Z0Ih0WLgFpKsxBVhQ',1795872276546,1795872276546,NULL);
CREATE TABLE spend_caps (                      -- what somebody may spend, beyond what the settings say
  subject    TEXT NOT NULL,                    -- login:<grant>, wallet:<id>, wallet:<id>/tool:<server>/<tool>
  period     TEXT NOT NULL,                    -- day | month | ever
  amount     BIGINT NOT NULL,
  set_by     TEXT NOT NULL,
  set_at     BIGINT NOT NULL,
  PRIMARY KEY (subject, period)
);
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
CREATE TABLE upstream_clients (                -- who this server is at their authorization servers, where it registered itself
  server TEXT NOT NULL,
  agent  TEXT NOT NULL,
  sealed TEXT NOT NULL,                        -- issuer, redirect address, client id and secret: AES-GCM under a subkey, base64
  PRIMARY KEY (server, agent)
);
CREATE TABLE upstream_logins (                 -- a sign-in that is under way at a provider
  state_hash   TEXT PRIMARY KEY,               -- SHA-256
  provider     TEXT NOT NULL,
  browser_hash TEXT NOT NULL,
  sealed       TEXT NOT NULL,                  -- verifier, nonce, where to go then: AES-GCM under a subkey, base64
  used_at      BIGINT,
  expires_at   BIGINT NOT NULL
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
CREATE TABLE upstreams (                       -- those that have been met: what one offers first counts once
  server TEXT NOT NULL,                        -- name of a [[server]]
  agent  TEXT NOT NULL,
  source TEXT NOT NULL,                        -- SHA-256 of where it is, by the settings: at another place it is another
  met_at BIGINT NOT NULL,
  PRIMARY KEY (server, agent)
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
INSERT INTO "users" VALUES('usr_t7fl37ofkrlug42mjmt4','owner','owner','unclaimed',NULL,'*',1795872276546,'',NULL,NULL,NULL);
INSERT INTO "users" VALUES('usr_ictrzpraj3ptdqww63c2','ada','user','invited',NULL,'mcp mcp:tools mcp:resources',1795872278333,'',NULL,'local:0',NULL);
CREATE TABLE voucher_uses (
  code_hash TEXT NOT NULL REFERENCES vouchers (code_hash) ON DELETE CASCADE,
  wallet    TEXT NOT NULL,
  used_at   BIGINT NOT NULL,
  PRIMARY KEY (code_hash, wallet)
);
CREATE TABLE vouchers (
  code_hash  TEXT PRIMARY KEY,                 -- SHA-256
  hint       TEXT NOT NULL,                    -- its last four letters, to tell vouchers apart
  amount     BIGINT NOT NULL,                  -- 0: a plan alone
  currency   TEXT NOT NULL,
  plan       TEXT,
  uses_left  INTEGER NOT NULL,
  note       TEXT NOT NULL DEFAULT '',
  created_by TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  revoked_at BIGINT
);
CREATE TABLE wallets (                         -- what somebody has here
  id         TEXT PRIMARY KEY,                 -- whose: user:…, client:…, token:…, payer:…
  currency   TEXT NOT NULL,
  balance    BIGINT NOT NULL CHECK (balance >= 0),
  held       BIGINT NOT NULL CHECK (held >= 0 AND held <= balance),   -- for calls under way
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);
INSERT INTO "wallets" VALUES('user:usr_t7fl37ofkrlug42mjmt4','USD',1000000,0,1795872280440,1795872280440);
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
CREATE INDEX movements_from ON movements (source, seq);
CREATE INDEX movements_to ON movements (target, seq);
CREATE UNIQUE INDEX movements_of_charge ON movements (charge_id, kind) WHERE charge_id IS NOT NULL AND refers IS NULL;
CREATE UNIQUE INDEX movements_of_payment ON movements (payment_id, kind) WHERE payment_id IS NOT NULL AND refers IS NULL;
CREATE INDEX movements_taken_back ON movements (refers) WHERE refers IS NOT NULL;
CREATE UNIQUE INDEX charges_standing ON charges (call_key) WHERE stands = 1;
CREATE INDEX charges_by_expiry ON charges (expires_at);
CREATE INDEX charges_under_way ON charges (owner) WHERE owner IS NOT NULL;
CREATE INDEX payments_by_expiry ON payments (expires_at);
CREATE INDEX payments_unsettled ON payments (next_try_at) WHERE state IN ('settling', 'unknown');
CREATE INDEX payments_under_way ON payments (owner) WHERE owner IS NOT NULL;
CREATE INDEX meters_by_expiry ON meters (expires_at);
CREATE INDEX plan_grants_by_wallet ON plan_grants (wallet);
CREATE INDEX vouchers_by_expiry ON vouchers (expires_at);
CREATE INDEX charges_kept ON charges (caller, answered_at, answer_bytes) WHERE answer_bytes > 0;
CREATE INDEX upstream_trips_by_expiry ON upstream_trips (expires_at);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('audit',13);
INSERT INTO "sqlite_sequence" VALUES('changes',3);
COMMIT;
