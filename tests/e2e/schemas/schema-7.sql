-- ostiary-key-1:8bf95984cfa9:EIhsvw9JnnO_xBIb9_CDq8kE89MqMbxzrMzvbNhlZOI
-- ost_R0ir3AaelvJeQhntSKPhAbwvYZcyGwLo1eJlubusDWj1duv2x
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
INSERT INTO "api_keys" VALUES('key_txbu6qybcnfzvzmmcpqv','for-tests','usr_x2kpbgq4lrdshxbd2fob','c867f160866021838c40a3b3a18a99fe4cba86f4d31e8305b91c4e8632c4df5b','uv2x',NULL,'mcp','','local:0',1795872254518,NULL,NULL,NULL,NULL);
CREATE TABLE attempts (                        -- failed or counted tries, for throttling
  bucket   TEXT NOT NULL,                      -- e.g. signin:user:usr_1, entry:session:…; never a secret
  at       BIGINT NOT NULL,
  sequence INTEGER NOT NULL,                   -- tells tries of one millisecond apart
  PRIMARY KEY (bucket, at, sequence)
);
INSERT INTO "attempts" VALUES('device:around 127.0.0.0/24',1795872256612,0);
INSERT INTO "attempts" VALUES('device:around 127.0.0.0/24',1795872262570,0);
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
INSERT INTO "audit" VALUES(1,1795872252215,'user.added','local:setup',NULL,NULL,NULL,NULL,'ok','usr_x2kpbgq4lrdshxbd2fob owner, unclaimed','242a4df95f1cb88055425c0096bc875d37479fc4924613691cc1294086249bb2',NULL,NULL);
INSERT INTO "audit" VALUES(2,1795872252215,'client.added','local:setup','ostiary-cli',NULL,NULL,NULL,'ok','built in','ce672ce8e5a255a66876ee33f04fd64b9edfe27878806de1203249258e8b55a6',NULL,NULL);
INSERT INTO "audit" VALUES(3,1795872252215,'key.added','local:setup',NULL,NULL,NULL,NULL,'ok','tzy7E3CM9xBq7L_jVqd915iB-mcSYug25WJ28tB4Y_A','64c6ab52532a993b76c8b3576a00d8c1571274071d42e5e0ef7672e6a3a49dac',NULL,NULL);
INSERT INTO "audit" VALUES(4,1795872252215,'key.added','local:setup',NULL,NULL,NULL,NULL,'ok','rt1','7aea2546587370ee764ce63fffdd19c9f707904b12a5e76509a7f9a7dd4b8adc',NULL,NULL);
INSERT INTO "audit" VALUES(5,1795872252832,'client.added','local:0','a-program',NULL,NULL,NULL,'ok','','51bc5e6c2c78b84c215c116e4c856c17a49af4857b11b50e915642c15958cb4d',NULL,NULL);
INSERT INTO "audit" VALUES(6,1795872253728,'invite.link_made','local:0',NULL,NULL,NULL,NULL,'ok','usr_ykje5yqgbdftoomxihrr','fcbbbd048a83e6a93032a92f871f41579c610d659a7494dabeaa81b2c407948c',NULL,NULL);
INSERT INTO "audit" VALUES(7,1795872253728,'user.invited','local:0',NULL,NULL,NULL,NULL,'ok','usr_ykje5yqgbdftoomxihrr ada','3b00b9817920d16993cd47267f9cba214b8c6f0ff71d1d677b7d2987495f0c6d',NULL,NULL);
INSERT INTO "audit" VALUES(8,1795872254518,'api_key.created','local:0',NULL,'key_txbu6qybcnfzvzmmcpqv',NULL,NULL,'ok','','af8b2cbd56c626353b1a09a34cdf4bbe2d4ec27d8d0a3e3b2a8cf34ac00b4988',NULL,NULL);
INSERT INTO "audit" VALUES(9,1795872255371,'ledger.granted','local:0',NULL,NULL,NULL,NULL,'ok','movement 1 gives user:usr_x2kpbgq4lrdshxbd2fob $1.00','f56940827e7edde2d28e68fe0bed13f82aff35267ec85df752d206db41113ff9',NULL,NULL);
INSERT INTO "audit" VALUES(10,1795872256612,'device.requested','client:ostiary-cli','ostiary-cli',NULL,'127.0.0.1','ostiary/0.1.0','ok','dev_h6vftf5tykovoh77tuz7','e24f4ba36d5cf7a0a2315b83d36503383024821e467ebd480632bc91990de851',NULL,NULL);
INSERT INTO "audit" VALUES(11,1795872257199,'device.approved','local:0','ostiary-cli',NULL,'127.0.0.1','ostiary/0.1.0','ok','dev_h6vftf5tykovoh77tuz7','8e56d192002b5db08952de39da70e1e9ea9e8c3bf77c036c584044b6fdbadeec',NULL,NULL);
INSERT INTO "audit" VALUES(12,1795872261719,'device.redeemed','client:ostiary-cli','ostiary-cli','grt_jgwsdrsm2wej4f6e3gkx','127.0.0.1','ostiary/0.1.0','ok','dev_h6vftf5tykovoh77tuz7','2b2278a4b54e32baee3b27d1873797f1f01f4773770891b54721976db119529a',NULL,NULL);
INSERT INTO "audit" VALUES(13,1795872262570,'device.requested','client:ostiary-cli','ostiary-cli',NULL,'127.0.0.1','python-httpx2/2.16.2','ok','dev_7x6ebkmsqpab4nmflkox','e8a1ed77884ddc4042ebdccbdaa1f58170e84024fb3f1763111b9596d15e4a26',NULL,NULL);
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
INSERT INTO "changes" VALUES(1,1795872252217,'key','tzy7E3CM9xBq7L_jVqd915iB-mcSYug25WJ28tB4Y_A');
INSERT INTO "changes" VALUES(2,1795872252217,'key','rt1');
INSERT INTO "changes" VALUES(3,1795872254518,'api_key','key_txbu6qybcnfzvzmmcpqv');
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
);
CREATE TABLE chores (                          -- maintenance: whoever holds the lease does it, once
  name        TEXT PRIMARY KEY,
  owner       TEXT,                            -- boot id
  lease_until BIGINT NOT NULL,
  fence       BIGINT NOT NULL,
  last_run_at BIGINT
);
INSERT INTO "chores" VALUES('sweep',NULL,0,1,1795872252265);
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
INSERT INTO "clients" VALUES('ostiary-cli','builtin','Ostiary in a terminal',NULL,'none','urn:ietf:params:oauth:grant-type:device_code authorization_code refresh_token','http://127.0.0.1/callback','*','enabled',1795872252215,1795872261719,'',NULL,NULL,'{}',NULL,NULL,1795872261719,NULL,0);
INSERT INTO "clients" VALUES('a-program','registered','a program',NULL,'none','urn:ietf:params:oauth:grant-type:device_code','','*','enabled',1795872252832,NULL,'',NULL,NULL,'{}',NULL,NULL,NULL,NULL,0);
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
INSERT INTO "device_codes" VALUES('dev_h6vftf5tykovoh77tuz7','8e721625b91c86a6d20b65309189e6443c2403ea9b6cb82768fba0c98baaf980','eef980fbbb0dcedc8bc3763b67918c12ed7d007134f3e8ae8268e6a5e0f07166','ostiary-cli','ostiary 0.1.0','vm','main','http://127.0.0.1:37363','mcp','127.0.0.1','127.0.0.1','ostiary/0.1.0','used',5,NULL,1795872256612,1795872856612,1795872257199,'local:0','usr_x2kpbgq4lrdshxbd2fob','mcp','grt_jgwsdrsm2wej4f6e3gkx');
INSERT INTO "device_codes" VALUES('dev_7x6ebkmsqpab4nmflkox','ce62e72cc5f7caf46bad529825e2f819c2fc2a34bc9d6cea5812245158111363','9d33ac3bda24b8c4cceff35eb708816bf63508d2c74849be12be8bf321dbdc37','ostiary-cli','','','main','http://127.0.0.1:37363','mcp mcp:tools mcp:resources','127.0.0.1','127.0.0.1','python-httpx2/2.16.2','pending',5,NULL,1795872262570,1795872862570,NULL,NULL,NULL,NULL,NULL);
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
INSERT INTO "grants" VALUES('grt_jgwsdrsm2wej4f6e3gkx','user','usr_x2kpbgq4lrdshxbd2fob','ostiary-cli','ostiary 0.1.0','vm','main','http://127.0.0.1:37363','mcp','127.0.0.1','ostiary/0.1.0','local:0',1795872257199,1795872261719,1,'epo_4aklilhz4tqhenf5rp43',1795872261719,1795872261719,1798464261719,1798464261719,NULL,NULL,'device','','127.0.0.1',NULL);
CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
);
INSERT INTO "meta" VALUES('key_fingerprint','8bf95984cfa9:0a5bf05bf59bc3cfa9f1fa1bfc714511');
INSERT INTO "meta" VALUES('audit_chain','3:1:0::13:e8a1ed77884ddc4042ebdccbdaa1f58170e84024fb3f1763111b9596d15e4a26:0:0 216ae90ea089b4eb99478c82a454ef825b9e19aabdbdb817fc7ad7eacd7b6d3e');
INSERT INTO "meta" VALUES('ledger_chain','3:0:0::1:aa1c934e51483bc44d6850c163e8ea1b924801744178156b10afaa9d4844fe97:0:0 219089667a0319724876c35ea914335f1f3f83d71e911af4d6bc1ea869fbab70');
INSERT INTO "meta" VALUES('refresh_epoch','epo_4aklilhz4tqhenf5rp43');
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
INSERT INTO "movements" VALUES(1,1795872255371,'grant','granted','wallet:user:usr_x2kpbgq4lrdshxbd2fob',1000000,'USD','local:0',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'','aa1c934e51483bc44d6850c163e8ea1b924801744178156b10afaa9d4844fe97');
CREATE TABLE one_time_links (
  token_hash TEXT PRIMARY KEY,                 -- SHA-256
  kind       TEXT NOT NULL,                    -- claim
  user_id    TEXT NOT NULL REFERENCES users (id),
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  used_at    BIGINT
);
INSERT INTO "one_time_links" VALUES('62bb62856ef68ce088f157ac3719be8490f3bed1dc164fe4eda8148a8254688c','invite','usr_ykje5yqgbdftoomxihrr',1795872253728,1796131453728,NULL);
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
INSERT INTO "refresh_keys" VALUES(1,'hplZIRaFXOVi62Ew2CBrx0m1Mu+kTqhRtkY44s2UNkgaSes8aHYY+nBDUDZGsIho6Ul9Och4nYN1sSL3',1795872252215,NULL);
CREATE TABLE schema_version (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL, sha256 TEXT);
INSERT INTO "schema_version" VALUES(1,'foundation',1795872252045,'4a064f00e692e7cee306e39a05459d2173edd9f0a4843ca9c04dcb8bddc9643f');
INSERT INTO "schema_version" VALUES(2,'tasks',1795872252045,'1045fa6aa41a360e1ea2da28e98c02b869acd19f3fb232c84aeda56e9f306ad5');
INSERT INTO "schema_version" VALUES(3,'identity',1795872252045,'6825c9171706ac7637beb779c2ee8b510e0c9ed7cbaa3e0e8b856462467a4457');
INSERT INTO "schema_version" VALUES(4,'many_rows',1795872252045,'c3cb9f68bc211b400df2f79ede6ba0ca2a85f60f675ac3b94f4c0c42be350f52');
INSERT INTO "schema_version" VALUES(5,'sessions',1795872252045,'177cdcbf67c565e785b4db803171bb49446024e3d68100ee02ba6eab576b6936');
INSERT INTO "schema_version" VALUES(6,'audit',1795872252045,'c5109174576ffe856953c5ad9df0f6f1e12f7b6d4d6ab81555a4125d6dc163ad');
INSERT INTO "schema_version" VALUES(7,'money',1795872252045,'a8fd4dd38af97623c8eb80820ff28265d006993f47c82140c007941fd2b80287');
CREATE TABLE signing_keys (
  kid            TEXT PRIMARY KEY,
  algorithm      TEXT NOT NULL,
  public_jwk     TEXT NOT NULL,
  sealed_private TEXT NOT NULL,                -- AES-GCM under a subkey of the key file, base64
  created_at     BIGINT NOT NULL,
  signs_from     BIGINT NOT NULL,
  retires_at     BIGINT                        -- dropped from the JWKS after this
);
INSERT INTO "signing_keys" VALUES('tzy7E3CM9xBq7L_jVqd915iB-mcSYug25WJ28tB4Y_A','ES256','{"crv":"P-256","kty":"EC","x":"EJuL0DRyRyKFaD2b24pylck8kZZU9YhrY_yDqd4GEyY","y":"Ezjb9bv36zN1WEIy5Eex4VA6iHktqWI34OJp-b15tCI","kid":"tzy7E3CM9xBq7L_jVqd915iB-mcSYug25WJ28tB4Y_A","alg":"ES256","use":"sig"}','3I+5kBdbIi/ZFrFjDw+SL2ze23sVTFVIySQMz6PHmwq1+bXgHIhL8eqyVJhgBYb1EDpd+pA4MzLSsBGS17wQfRRzsa2IC0a6J8U01XXGO4TX3bf5fqz1O2fPt56FUl326ZHnkz8X4QcNVa2uLzRwOQjxpBLdctOCxsGNVy1u5CHbN5lZ354xWFHErkeyKRGK/3DXdHu4UzrER1H/EfOA84ejFaSR1PW4fPSlwL1uOFl1UmdvY8J0YMkc/zTz47bH+HqEnQ2jtGh+la09',1795872252215,1795872252215,NULL);
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
INSERT INTO "users" VALUES('usr_x2kpbgq4lrdshxbd2fob','owner','owner','unclaimed',NULL,'*',1795872252215,'',NULL,NULL,NULL);
INSERT INTO "users" VALUES('usr_ykje5yqgbdftoomxihrr','ada','user','invited',NULL,'mcp mcp:tools mcp:resources',1795872253728,'',NULL,'local:0',NULL);
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
INSERT INTO "wallets" VALUES('user:usr_x2kpbgq4lrdshxbd2fob','USD',1000000,0,1795872255371,1795872255371);
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
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('audit',13);
INSERT INTO "sqlite_sequence" VALUES('changes',3);
COMMIT;
