-- ostiary-key-1:beef753a1087:ZeIQ39enwH0U6KZq7Y0FxCKUWZp1_VOJDOneuSx380g
-- ost_lDS9TLrY76MXxsPengHv1VgmI8t0uAcHtfc2y4o81uk3JJfOV
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
INSERT INTO "api_keys" VALUES('key_qv7qadcgay275cmlppno','for-tests','usr_dtat3hpcpbbnkuhgzexu','ca7dfd589ab7fe564e59f4fdaacc87177009c639bbadddf290d88aef85282b4b','JfOV',NULL,'mcp','','local:0',1795872295425,NULL,NULL,NULL,NULL);
CREATE TABLE attempts (                        -- failed or counted tries, for throttling
  bucket   TEXT NOT NULL,                      -- e.g. signin:user:usr_1, entry:session:…; never a secret
  at       BIGINT NOT NULL,
  sequence INTEGER NOT NULL,                   -- tells tries of one millisecond apart
  PRIMARY KEY (bucket, at, sequence)
);
INSERT INTO "attempts" VALUES('device:around 127.0.0.0/24',1795872298930,0);
INSERT INTO "attempts" VALUES('device:around 127.0.0.0/24',1795872304805,0);
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
INSERT INTO "audit" VALUES(1,1795872292648,'user.added','local:setup',NULL,NULL,NULL,NULL,'ok','usr_dtat3hpcpbbnkuhgzexu owner, unclaimed','ae71b621ae58f39c0e7c1013247b2dfb25acd46b22c2227856f2b44b954e841e',NULL,NULL);
INSERT INTO "audit" VALUES(2,1795872292648,'client.added','local:setup','ostiary-cli',NULL,NULL,NULL,'ok','built in','1244b034fb5881cffcb70a845ba52f509f6fd6e9e3b440393e4d0f54d33634dc',NULL,NULL);
INSERT INTO "audit" VALUES(3,1795872292648,'key.added','local:setup',NULL,NULL,NULL,NULL,'ok','F8D8tkV2Nf4BvdVS5RCr6iFoIv0GM0JnyCw9-e0e3D8','501eaac7943762d2335eeb2b02317a93bfe5eb116e25b8519d838b9ec4351d6d',NULL,NULL);
INSERT INTO "audit" VALUES(4,1795872292648,'key.added','local:setup',NULL,NULL,NULL,NULL,'ok','rt1','7780aa544dd93e07e344a24c2f659de07b85149faa0b848438691a10ba46ee8d',NULL,NULL);
INSERT INTO "audit" VALUES(5,1795872293724,'client.added','local:0','a-program',NULL,NULL,NULL,'ok','','38fa0708add6dac3ff63fd405f837614068e94fdd57c3f8adb354841459396d7',NULL,NULL);
INSERT INTO "audit" VALUES(6,1795872294704,'invite.link_made','local:0',NULL,NULL,NULL,NULL,'ok','usr_vov6li3qaxisb3dkvqug','95d34f21b8d5aae913a87b45c3c494f191d16a4b2933a183fd6ff4299b8dccde',NULL,NULL);
INSERT INTO "audit" VALUES(7,1795872294704,'user.invited','local:0',NULL,NULL,NULL,NULL,'ok','usr_vov6li3qaxisb3dkvqug ada','fb647cccfddf83ae48ab6cb4d84145cec77b0af712647d4fd8b01ae1d66a9ee6',NULL,NULL);
INSERT INTO "audit" VALUES(8,1795872295425,'api_key.created','local:0',NULL,'key_qv7qadcgay275cmlppno',NULL,NULL,'ok','','bf56244a2475dfacd277e724b14d888a81e2d2d630c2c9ee9ad392fb404aa147',NULL,NULL);
INSERT INTO "audit" VALUES(9,1795872296504,'ledger.granted','local:0',NULL,NULL,NULL,NULL,'ok','movement 1 gives user:usr_dtat3hpcpbbnkuhgzexu $1.00','133016ed4774f88d49adc33b199f3ff6d87262ca86f190cb57849306809c5130',NULL,NULL);
INSERT INTO "audit" VALUES(10,1795872298930,'device.requested','client:ostiary-cli','ostiary-cli',NULL,'127.0.0.1','ostiary/0.1.0','ok','dev_vus3xj4u7i5mtjidtpap','32e05450b45ea0ad210410cc548fb49d1e868e884a765b652a2507146924e590',NULL,NULL);
INSERT INTO "audit" VALUES(11,1795872300752,'device.approved','local:0','ostiary-cli',NULL,'127.0.0.1','ostiary/0.1.0','ok','dev_vus3xj4u7i5mtjidtpap','4d8c00eeb93a4a7291f40c7d94134c8195daac8cbe7e0a413376d8729d9d93e8',NULL,NULL);
INSERT INTO "audit" VALUES(12,1795872304056,'device.redeemed','client:ostiary-cli','ostiary-cli','grt_wtoo5fhlbizxso6baatw','127.0.0.1','ostiary/0.1.0','ok','dev_vus3xj4u7i5mtjidtpap','f55879e2c7942ff26c8c37325395d2cd8eedfd5941b873ff47753176a911a2c5',NULL,NULL);
INSERT INTO "audit" VALUES(13,1795872304805,'device.requested','client:ostiary-cli','ostiary-cli',NULL,'127.0.0.1','python-httpx2/2.16.2','ok','dev_6ycyilhvdbsl4vihvett','ad3091d9b1c1ddf0de44b9b001d1eb6b3a061ae7f96a6d116b8866ff74a87e56',NULL,NULL);
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
CREATE TABLE call_hours (                      -- every call is counted here, also one that has no row
  hour      BIGINT NOT NULL,                   -- when it began
  server    TEXT NOT NULL,
  tool      TEXT NOT NULL,
  caller    TEXT NOT NULL,                     -- the principal's key; '': everybody beyond so many in an hour
  outcome   TEXT NOT NULL,
  kind      TEXT NOT NULL,
  subject   TEXT NOT NULL,
  person    TEXT NOT NULL,
  program   TEXT NOT NULL,
  count     BIGINT NOT NULL,
  ms        REAL NOT NULL,                     -- all together
  -- How many took at most 1, 2, 5, 10, 20, 50, 100, 200, 500 ms, 1, 2, 5, 10, 30 s, 1, 5 minutes, and longer.
  d0  BIGINT NOT NULL, d1  BIGINT NOT NULL, d2  BIGINT NOT NULL, d3  BIGINT NOT NULL, d4  BIGINT NOT NULL, d5  BIGINT NOT NULL,
  d6  BIGINT NOT NULL, d7  BIGINT NOT NULL, d8  BIGINT NOT NULL, d9  BIGINT NOT NULL, d10 BIGINT NOT NULL, d11 BIGINT NOT NULL,
  d12 BIGINT NOT NULL, d13 BIGINT NOT NULL, d14 BIGINT NOT NULL, d15 BIGINT NOT NULL, d16 BIGINT NOT NULL,
  PRIMARY KEY (hour, server, tool, caller, outcome)
);
CREATE TABLE calls (
  seq         INTEGER PRIMARY KEY,             -- in the order in which they ended, without gaps but at the beginning
  at          BIGINT NOT NULL,                 -- when it ended
  server      TEXT NOT NULL,
  tool        TEXT NOT NULL,
  outcome     TEXT NOT NULL,                   -- ok | asked | replayed | error | invalid | failed | refused | timeout | crashed | unpaid | cancelled
  reason      TEXT NOT NULL DEFAULT '',        -- why it failed, in words
  ms          REAL NOT NULL,
  kind        TEXT NOT NULL,                   -- of caller
  subject     TEXT NOT NULL,
  person      TEXT NOT NULL,                   -- what they were called then; '': nobody that has a name
  client_id   TEXT,
  program     TEXT NOT NULL,                   -- what it was called then, or the key
  grant_id    TEXT,
  call_id     TEXT NOT NULL,
  revision    TEXT NOT NULL,                   -- of the protocol
  is_task     INTEGER NOT NULL,
  price       TEXT,                            -- the version of its price
  asked       BIGINT,                          -- bytes of its parameters; NULL: not known
  answered    BIGINT,                          -- bytes of its answer
  passed_over INTEGER NOT NULL DEFAULT 0       -- calls that ended since the row before, and are counted alone
);
CREATE TABLE changes (                         -- what other processes must forget; tailed by seq
  seq       INTEGER PRIMARY KEY AUTOINCREMENT,
  at        BIGINT NOT NULL,
  kind      TEXT NOT NULL,                     -- grant | user | client | key
  entity_id TEXT NOT NULL
);
INSERT INTO "changes" VALUES(1,1795872292651,'key','F8D8tkV2Nf4BvdVS5RCr6iFoIv0GM0JnyCw9-e0e3D8');
INSERT INTO "changes" VALUES(2,1795872292651,'key','rt1');
INSERT INTO "changes" VALUES(3,1795872295425,'api_key','key_qv7qadcgay275cmlppno');
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
INSERT INTO "chores" VALUES('sweep',NULL,0,1,1795872292704);
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
INSERT INTO "clients" VALUES('ostiary-cli','builtin','Ostiary in a terminal',NULL,'none','urn:ietf:params:oauth:grant-type:device_code authorization_code refresh_token','http://127.0.0.1/callback','*','enabled',1795872292648,1795872304056,'',NULL,NULL,'{}',NULL,NULL,1795872304056,NULL,0);
INSERT INTO "clients" VALUES('a-program','registered','a program',NULL,'none','urn:ietf:params:oauth:grant-type:device_code','','*','enabled',1795872293724,NULL,'',NULL,NULL,'{}',NULL,NULL,NULL,NULL,0);
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
INSERT INTO "device_codes" VALUES('dev_vus3xj4u7i5mtjidtpap','0e5c41457f1137686581db969dacc4477cc8d2251997f353b3b668b3039ab6f3','d147d74293bfe352cc35ee074ee67acf3cd3dca52eac36b56b66819295abf820','ostiary-cli','ostiary 0.1.0','vm','main','http://127.0.0.1:41569','mcp','127.0.0.1','127.0.0.1','ostiary/0.1.0','used',5,NULL,1795872298930,1795872898930,1795872300752,'local:0','usr_dtat3hpcpbbnkuhgzexu','mcp','grt_wtoo5fhlbizxso6baatw');
INSERT INTO "device_codes" VALUES('dev_6ycyilhvdbsl4vihvett','cddb5fcdf0ebafcd2418d62998177be2bb3febdcccf3ce3a10dc92d9fc64d5d7','25821b4754144b1cfd23357749f4d06bc79e63eb72229815e6bf48bbf0ec061d','ostiary-cli','','','main','http://127.0.0.1:41569','mcp mcp:tools mcp:resources','127.0.0.1','127.0.0.1','python-httpx2/2.16.2','pending',5,NULL,1795872304805,1795872904805,NULL,NULL,NULL,NULL,NULL);
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
INSERT INTO "grants" VALUES('grt_wtoo5fhlbizxso6baatw','user','usr_dtat3hpcpbbnkuhgzexu','ostiary-cli','ostiary 0.1.0','vm','main','http://127.0.0.1:41569','mcp','127.0.0.1','ostiary/0.1.0','local:0',1795872300752,1795872304056,1,'epo_ltgswkjack32l5rohtbl',1795872304056,1795872304056,1798464304056,1798464304056,NULL,NULL,'device','','127.0.0.1',NULL);
CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
);
INSERT INTO "meta" VALUES('key_fingerprint','beef753a1087:11d94bfe4b761e141c7d01eb7ac0009e');
INSERT INTO "meta" VALUES('audit_chain','3:1:0::13:ad3091d9b1c1ddf0de44b9b001d1eb6b3a061ae7f96a6d116b8866ff74a87e56:0:0 670b16a208225bd8310e2c676034487ff0066651dde786f5ad795e94a4e5100e');
INSERT INTO "meta" VALUES('ledger_chain','3:0:0::1:570f6d685e5131b00e98693b371f4d95ff1317b9e237b02d51975091118051f7:0:0 dc99bd8f3607ce08e9eb69f96b36aa8f6b513535004c3d6110d8e26cb8ea83cd');
INSERT INTO "meta" VALUES('refresh_epoch','epo_ltgswkjack32l5rohtbl');
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
INSERT INTO "movements" VALUES(1,1795872296504,'grant','granted','wallet:user:usr_dtat3hpcpbbnkuhgzexu',1000000,'USD','local:0',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'','570f6d685e5131b00e98693b371f4d95ff1317b9e237b02d51975091118051f7');
CREATE TABLE one_time_links (
  token_hash TEXT PRIMARY KEY,                 -- SHA-256
  kind       TEXT NOT NULL,                    -- claim
  user_id    TEXT NOT NULL REFERENCES users (id),
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  used_at    BIGINT
);
INSERT INTO "one_time_links" VALUES('50e31ea64b56501adadc43b50e1ff20b34c8277658ebf9456dd2a1bc77fe67f3','invite','usr_vov6li3qaxisb3dkvqug',1795872294704,1796131494704,NULL);
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
INSERT INTO "refresh_keys" VALUES(1,'feDyWrtYijG3tB7oArBxiJcdNmkeHTbmWwmHmcC81RdXubDC11mbzhcg+1QLxupAntSH9AHtyxwamypk',1795872292648,NULL);
CREATE TABLE schema_version (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL, sha256 TEXT);
INSERT INTO "schema_version" VALUES(1,'foundation',1795872292525,'4a064f00e692e7cee306e39a05459d2173edd9f0a4843ca9c04dcb8bddc9643f');
INSERT INTO "schema_version" VALUES(2,'tasks',1795872292525,'1045fa6aa41a360e1ea2da28e98c02b869acd19f3fb232c84aeda56e9f306ad5');
INSERT INTO "schema_version" VALUES(3,'identity',1795872292525,'6825c9171706ac7637beb779c2ee8b510e0c9ed7cbaa3e0e8b856462467a4457');
INSERT INTO "schema_version" VALUES(4,'many_rows',1795872292525,'c3cb9f68bc211b400df2f79ede6ba0ca2a85f60f675ac3b94f4c0c42be350f52');
INSERT INTO "schema_version" VALUES(5,'sessions',1795872292525,'177cdcbf67c565e785b4db803171bb49446024e3d68100ee02ba6eab576b6936');
INSERT INTO "schema_version" VALUES(6,'audit',1795872292525,'c5109174576ffe856953c5ad9df0f6f1e12f7b6d4d6ab81555a4125d6dc163ad');
INSERT INTO "schema_version" VALUES(7,'money',1795872292525,'a8fd4dd38af97623c8eb80820ff28265d006993f47c82140c007941fd2b80287');
INSERT INTO "schema_version" VALUES(8,'kept_answers',1795872292525,'41515e4b6fbccf1421edb747ee92e8372be2254c4a5aa69f0cb9c3a2fe5e469b');
INSERT INTO "schema_version" VALUES(9,'upstreams',1795872292525,'b7d7306c5add83edbc32fc5a135c6bb07fad91cecd101d0875b61180e287315a');
INSERT INTO "schema_version" VALUES(10,'calls',1795872292525,'39b07925fe223d557c1632cc6263110742fc5ff6ce07be8ae8c8d4acfdde0635');
CREATE TABLE signing_keys (
  kid            TEXT PRIMARY KEY,
  algorithm      TEXT NOT NULL,
  public_jwk     TEXT NOT NULL,
  sealed_private TEXT NOT NULL,                -- AES-GCM under a subkey of the key file, base64
  created_at     BIGINT NOT NULL,
  signs_from     BIGINT NOT NULL,
  retires_at     BIGINT                        -- dropped from the JWKS after this
);
INSERT INTO "signing_keys" VALUES('F8D8tkV2Nf4BvdVS5RCr6iFoIv0GM0JnyCw9-e0e3D8','ES256','{"crv":"P-256","kty":"EC","x":"gXqo77kDfwW7m9uTEunuR6TRfAw3UHQ72BOhEuiL0qw","y":"JGk-FB1cGF-8ZAVOS7Dctnv2EKoBAxjmJv-fisMT1cU","kid":"F8D8tkV2Nf4BvdVS5RCr6iFoIv0GM0JnyCw9-e0e3D8","alg":"ES256","use":"sig"}','jVUlpn7cElUa0vCPAxtGBzFiKviaejhLx0LwsDX+ebGqy4XUNMvXKP5uGK9vNTzP+HiHwt5rGM65hhx94KgGcPrv2327UV0ldeSK/WtoZvCj/OZ7NohvwqUI2Vx4pVmS0rGA7pVNFMhvZ+VpGCceM8yiYSPRWN4gKwpvEPyDdZvap2ckcOtZtohJqhch4JAI49k6frTKsmjD3t1uMZd8Lt2J4TG4VqEjcMewnWNc8WtedD3yjNE3A2sZ2F13ziWmxqcLbLiRMZ1bys9V',1795872292648,1795872292648,NULL);
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
INSERT INTO "users" VALUES('usr_dtat3hpcpbbnkuhgzexu','owner','owner','unclaimed',NULL,'*',1795872292648,'',NULL,NULL,NULL);
INSERT INTO "users" VALUES('usr_vov6li3qaxisb3dkvqug','ada','user','invited',NULL,'mcp mcp:tools mcp:resources',1795872294704,'',NULL,'local:0',NULL);
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
INSERT INTO "wallets" VALUES('user:usr_dtat3hpcpbbnkuhgzexu','USD',1000000,0,1795872296504,1795872296504);
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
CREATE INDEX calls_by_age ON calls (at);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('audit',13);
INSERT INTO "sqlite_sequence" VALUES('changes',3);
COMMIT;
