-- ostiary-key-1:6e12a6292179:b9OXvTlZeCTqMB1EwWQEShALG_OM-Lmnh5Wlpaco8_Y
-- ost_sP197c1vf9CMNLVVSrMIQKwgOcAv7UpDn0NYfLOrL7q4NqcUU
PRAGMA application_id = 1330861145;
BEGIN TRANSACTION;
CREATE TABLE accounts (                        -- the books' other side: what movements brought, less what they took
  id       TEXT PRIMARY KEY,                   -- chain:<network>:<asset>, revenue:<server>/<tool>, granted, paid-out, …
  currency TEXT NOT NULL,
  balance  BIGINT NOT NULL
);
INSERT INTO "accounts" VALUES('granted','USD',-1000000);
CREATE TABLE acme_kept (
  what    TEXT PRIMARY KEY,    -- certificate, order, rest, proofs, state, wish; account: and revocation: with a digest
  sealed  TEXT NOT NULL,       -- AES-256-GCM
  version BIGINT NOT NULL      -- raised with each write
);
CREATE TABLE acme_known (
  boot_id TEXT PRIMARY KEY,
  proofs  BIGINT NOT NULL      -- the version that it shows
);
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
, seal TEXT NOT NULL DEFAULT '');
INSERT INTO "api_keys" VALUES('key_5c5k57m3eijiu32ywvbf','for-tests','usr_ssr5bibbmnuapedzkerj','da9cacb2253ae26d18fd7eabd99ef3e34e2b5bb788de51802ee29ce3f35253ff','qcUU',NULL,'mcp','','local:0',1795873881295,NULL,NULL,NULL,NULL,'ca4832720e90f8e613931e943307e2dcdc02475d79f0bb150b4ac1e1ff80ebca');
CREATE TABLE attempts (                        -- failed or counted tries, for throttling
  bucket   TEXT NOT NULL,                      -- e.g. signin:user:usr_1, entry:session:…; never a secret
  at       BIGINT NOT NULL,
  sequence INTEGER NOT NULL,                   -- tells tries of one millisecond apart
  PRIMARY KEY (bucket, at, sequence)
);
INSERT INTO "attempts" VALUES('device:around 127.0.0.0/24',1795873883281,0);
INSERT INTO "attempts" VALUES('device:around 127.0.0.0/24',1795873886814,0);
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
INSERT INTO "audit" VALUES(1,1795873880313,'user.added','local:setup',NULL,NULL,NULL,NULL,'ok','usr_ssr5bibbmnuapedzkerj owner, unclaimed','713f694864b08b3cf6c83717c045131124b5781dbd0394b80043edaedfa3cd31',NULL,NULL);
INSERT INTO "audit" VALUES(2,1795873880313,'client.added','local:setup','ostiary-cli',NULL,NULL,NULL,'ok','built in','864033ad1f42c44b9aa31a048866f008c28324bb5df1929f6e894c6207f83124',NULL,NULL);
INSERT INTO "audit" VALUES(3,1795873880313,'key.added','local:setup',NULL,NULL,NULL,NULL,'ok','DDveyl0mavuitzKOXZUg7wtWD3srsDKZ2wFNkA8xR5o','6bb0570d678bf8595a0e8abafca0832c548e074152614139cf293e244d21aa3e',NULL,NULL);
INSERT INTO "audit" VALUES(4,1795873880313,'key.added','local:setup',NULL,NULL,NULL,NULL,'ok','rt1','f9811ac2cf26a53523767c8c2ed05916127eea562ef9fea888a7bc838eb69304',NULL,NULL);
INSERT INTO "audit" VALUES(5,1795873880852,'client.added','local:0','a-program',NULL,NULL,NULL,'ok','','ac1c7a88e9fedbc092430f7a5ed2c78bf957d026e12f7650c661a51d8e81cecd',NULL,NULL);
INSERT INTO "audit" VALUES(6,1795873880985,'invite.link_made','local:0',NULL,NULL,NULL,NULL,'ok','usr_pnfdhhmivmsvvkry4ch5','a977d7d0e8c00f02348c3dbf6d77b18f424839d9daaa5fe69edeae9ae59d9e61',NULL,NULL);
INSERT INTO "audit" VALUES(7,1795873880985,'user.invited','local:0',NULL,NULL,NULL,NULL,'ok','usr_pnfdhhmivmsvvkry4ch5 ada','d325e6b91df2111d9d6e97aafabe6293222e308b0f1817f506efe52abe2ff538',NULL,NULL);
INSERT INTO "audit" VALUES(8,1795873881295,'api_key.created','local:0',NULL,'key_5c5k57m3eijiu32ywvbf',NULL,NULL,'ok','','bc985133af61215d3b607e8815067d5fcec271a6f1caed55296152acb792fdcd',NULL,NULL);
INSERT INTO "audit" VALUES(9,1795873881779,'ledger.granted','local:0',NULL,NULL,NULL,NULL,'ok','movement 1 gives user:usr_ssr5bibbmnuapedzkerj $1.00','e778673dab8e9a7e4d7410d2fd1469afb2444c0c9da9be024d117841663fbe7d',NULL,NULL);
INSERT INTO "audit" VALUES(10,1795873883281,'device.requested','client:ostiary-cli','ostiary-cli',NULL,'127.0.0.1','ostiary/0.1.0','ok','dev_n24sbl3knatrof7khm36','464a08777eb358292bc2ee782f2fbd12d118703cb627ef6a3599b9741ec83359',NULL,NULL);
INSERT INTO "audit" VALUES(11,1795873883553,'device.approved','local:0','ostiary-cli',NULL,'127.0.0.1','ostiary/0.1.0','ok','dev_n24sbl3knatrof7khm36','fd42c699f8cd41d9ee2019555f633bbc67ec9e363d2742fa3297c9ed4b5a654e',NULL,NULL);
INSERT INTO "audit" VALUES(12,1795873885364,'device.redeemed','client:ostiary-cli','ostiary-cli','grt_ppflpjvd6gcav27ahat3','127.0.0.1','ostiary/0.1.0','ok','dev_n24sbl3knatrof7khm36','2864369b14446a22ec4488961e9107b1b73c82c200916eac89f3b144d68905cd',NULL,NULL);
INSERT INTO "audit" VALUES(13,1795873886814,'device.requested','client:ostiary-cli','ostiary-cli',NULL,'127.0.0.1','python-httpx2/2.16.2','ok','dev_oiztoby23aclbulfimu3','51677100ccc35c6702914b40eea355be238c208a3dcbc3616d9ce1df50cc9af3',NULL,NULL);
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
, seal TEXT NOT NULL DEFAULT '');
CREATE TABLE browser_sessions (
  id_hash      TEXT PRIMARY KEY,               -- SHA-256 of the cookie
  user_id      TEXT NOT NULL REFERENCES users (id),
  created_at   BIGINT NOT NULL,
  auth_time    BIGINT NOT NULL,
  last_used_at BIGINT NOT NULL,
  expires_at   BIGINT NOT NULL,
  ip           TEXT NOT NULL,
  user_agent   TEXT NOT NULL
, seal TEXT NOT NULL DEFAULT '');
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
INSERT INTO "changes" VALUES(1,1795873880389,'key','DDveyl0mavuitzKOXZUg7wtWD3srsDKZ2wFNkA8xR5o');
INSERT INTO "changes" VALUES(2,1795873880389,'key','rt1');
INSERT INTO "changes" VALUES(3,1795873881300,'api_key','key_5c5k57m3eijiu32ywvbf');
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
INSERT INTO "chores" VALUES('sweep',NULL,0,1,1795873880684);
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
, client_uri TEXT NOT NULL DEFAULT '', jwks TEXT, jwks_uri TEXT, metadata TEXT NOT NULL DEFAULT '{}', registration_hash TEXT, network TEXT, authorized_at BIGINT, server TEXT, introspects INTEGER NOT NULL DEFAULT 0, seal TEXT NOT NULL DEFAULT '');
INSERT INTO "clients" VALUES('ostiary-cli','builtin','Ostiary in a terminal',NULL,'none','urn:ietf:params:oauth:grant-type:device_code authorization_code refresh_token','http://127.0.0.1/callback','*','enabled',1795873880313,1795873885364,'',NULL,NULL,'{}',NULL,NULL,1795873885364,NULL,0,'79c7f7df1cf148f46ecd46eb30b080dc79aa34e8e361d62bec6ced3b42d90f30');
INSERT INTO "clients" VALUES('a-program','registered','a program',NULL,'none','urn:ietf:params:oauth:grant-type:device_code','','*','enabled',1795873880852,NULL,'',NULL,NULL,'{}',NULL,NULL,NULL,NULL,0,'9d1b0a1b1cb7ed3e8a054116c6920e10b3dbad0c3a3fce29916dc581d941c294');
CREATE TABLE consents (                        -- what a person said yes to, so that the same is not asked every day
  user_id       TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
  client_id     TEXT NOT NULL REFERENCES clients (id) ON DELETE CASCADE,
  redirect_host TEXT NOT NULL,                 -- scheme and host, without a loopback port
  server        TEXT NOT NULL,
  scope         TEXT NOT NULL,
  client_hash   TEXT NOT NULL,                 -- of the client's redirect addresses: another set is asked about anew
  created_at    BIGINT NOT NULL,
  expires_at    BIGINT NOT NULL, seal TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (user_id, client_id, redirect_host, server)
);
CREATE TABLE conversations (
  id_hash    TEXT PRIMARY KEY,                 -- HMAC of agent, caller and session id
  agent      TEXT NOT NULL,                    -- HMAC of the server, the tool and its address
  owner      TEXT NOT NULL,                    -- HMAC of agent and caller
  version    BIGINT NOT NULL,                  -- one more with each exchange, and never one of before again
  sealed     BLOB NOT NULL,                    -- AES-256-GCM: the last exchanges, JSON
  used_at    BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
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
, seal TEXT NOT NULL DEFAULT '');
INSERT INTO "device_codes" VALUES('dev_n24sbl3knatrof7khm36','da47579c606e86fa41f9748a0bd72ed5c10f8035cd28062e162e3108b15fa86e','d4c999434b3569b4b36c94d884bc1d59d9045976f059d5f7a3afaf4ad7334e2a','ostiary-cli','ostiary 0.1.0','vm','main','http://127.0.0.1:37701','mcp','127.0.0.1','127.0.0.1','ostiary/0.1.0','used',2,NULL,1795873883281,1795874483281,1795873883553,'local:0','usr_ssr5bibbmnuapedzkerj','mcp','grt_ppflpjvd6gcav27ahat3','');
INSERT INTO "device_codes" VALUES('dev_oiztoby23aclbulfimu3','058d8501e55f9133d32bc1a886c2fad599a659f9907a716b1df9c614065a0e56','14d53f0a0ed6214fb13d503f7c5753d286567ee4d8b04d6e0324b2709998793d','ostiary-cli','','','main','http://127.0.0.1:37701','mcp mcp:tools mcp:resources','127.0.0.1','127.0.0.1','python-httpx2/2.16.2','pending',2,NULL,1795873886814,1795874486814,NULL,NULL,NULL,NULL,NULL,'8039d604cb4fbca80078063957e0f1a99dd626b7e2ce8f70c941c3ca76807863');
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
, how TEXT NOT NULL DEFAULT 'device', redirect_host TEXT NOT NULL DEFAULT '', last_ip TEXT NOT NULL DEFAULT '', jkt TEXT, called_at BIGINT, seal TEXT NOT NULL DEFAULT '');
INSERT INTO "grants" VALUES('grt_ppflpjvd6gcav27ahat3','user','usr_ssr5bibbmnuapedzkerj','ostiary-cli','ostiary 0.1.0','vm','main','http://127.0.0.1:37701','mcp','127.0.0.1','ostiary/0.1.0','local:0',1795873883553,1795873885364,1,'epo_765c3ec5qfomq4x36mjf',1795873885364,1795873885364,1798465885364,1798465885364,NULL,NULL,'device','','127.0.0.1',NULL,NULL,'7089741f13af6e8590fa2db2df42c4712eeceb3dd7efa2987675ae48a6cb1359');
CREATE TABLE kept_calls (
  id           TEXT PRIMARY KEY,               -- one_…
  call_key     TEXT NOT NULL UNIQUE,           -- HMAC of caller, server, tool, and the idempotency key or else the arguments
  fingerprint  TEXT NOT NULL,                  -- HMAC of server, tool and arguments
  keyed        INTEGER NOT NULL,               -- the caller gave it a key of its own
  state        TEXT NOT NULL,                  -- running | done | interrupted
  server       TEXT NOT NULL,
  tool         TEXT NOT NULL,
  caller       TEXT NOT NULL,                  -- the principal's key
  answer       BLOB,                           -- sealed; NULL: it was too large to be kept
  answer_bytes BIGINT NOT NULL DEFAULT 0,      -- 0 while it runs, and at least 1 afterwards
  owner        TEXT,                           -- boot id of the process that runs it; NULL: nobody does
  created_at   BIGINT NOT NULL,
  answered_at  BIGINT,                         -- when it ended
  expires_at   BIGINT NOT NULL
);
CREATE TABLE letters (
  seq    INTEGER PRIMARY KEY AUTOINCREMENT,
  node   TEXT NOT NULL,                        -- whose it is: a boot id
  kind   TEXT NOT NULL,
  topic  TEXT NOT NULL,                        -- what it is about: a hash, or the name of a server
  sealed BLOB NOT NULL,                        -- AES-256-GCM: it may hold what somebody answered
  at     BIGINT NOT NULL
);
CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
);
INSERT INTO "meta" VALUES('key_fingerprint','6e12a6292179:2b2d658b63b7e113b00687b7f78431d5');
INSERT INTO "meta" VALUES('seals','29a3915d7dd28e8add0ebfaafa0bea017f4b7cfe8d0422fb845f8b8f88c030a2');
INSERT INTO "meta" VALUES('audit_chain','3:1:0::13:51677100ccc35c6702914b40eea355be238c208a3dcbc3616d9ce1df50cc9af3:0:0 de4baef71159f3f7c4024069354552a8d84e4ec6b6c8b987de2640dc54000373');
INSERT INTO "meta" VALUES('ledger_chain','3:0:0::1:36447ecea7d42e8198250e538cbcd0c8e1ed49debea5565f91b37bc896a121b1:0:0 5370384052ddbafb4a085e38797062c53cae774037da5183efb2bd49e3080784');
INSERT INTO "meta" VALUES('refresh_epoch','epo_765c3ec5qfomq4x36mjf');
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
INSERT INTO "movements" VALUES(1,1795873881779,'grant','granted','wallet:user:usr_ssr5bibbmnuapedzkerj',1000000,'USD','local:0',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'','36447ecea7d42e8198250e538cbcd0c8e1ed49debea5565f91b37bc896a121b1');
CREATE TABLE nodes (
  boot_id     TEXT PRIMARY KEY,
  name        TEXT NOT NULL,    -- for people: machine and process
  home        TEXT NOT NULL,    -- of the data directory, which one process at a time has
  address     TEXT NOT NULL,    -- where it is reached, for people
  version     TEXT NOT NULL,
  started_at  BIGINT NOT NULL,
  alive_until BIGINT NOT NULL   -- by the database's clock
, place TEXT NOT NULL DEFAULT '', worker BIGINT NOT NULL DEFAULT 0, state TEXT NOT NULL DEFAULT '', trouble TEXT NOT NULL DEFAULT '');
INSERT INTO "nodes" VALUES('3b49b38f9191c617','vm:32345','c00338435d23c27668eb7c212175c70d','127.0.0.1:37701','0.1.0',1795873880204,1795873880204,'c00338435d23c27668eb7c212175c70d',0,'starting','');
CREATE TABLE one_time_links (
  token_hash TEXT PRIMARY KEY,                 -- SHA-256
  kind       TEXT NOT NULL,                    -- claim
  user_id    TEXT NOT NULL REFERENCES users (id),
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  used_at    BIGINT
, seal TEXT NOT NULL DEFAULT '');
INSERT INTO "one_time_links" VALUES('ec3284e6a927e071ef03453d2dd619f66bcaa0d72125d42021173817ff84c7b1','invite','usr_pnfdhhmivmsvvkry4ch5',1795873880985,1796133080985,NULL,'064aa5415e8c8d9885a78304039f1a3b9cfdb235c7258652b06ff469c2b07db7');
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
, seal TEXT NOT NULL DEFAULT '');
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
INSERT INTO "refresh_keys" VALUES(1,'a+lEVxWzi/qEHoS12PLxYrRqwEZ8FYIaRUnc3FMe60ca8BMFkr41pa9XHXebsNhXJEdPweNt7Zit5Jod',1795873880313,NULL);
CREATE TABLE schema_version (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL, sha256 TEXT, additive BIGINT);
INSERT INTO "schema_version" VALUES(1,'foundation',1795873879677,'4a064f00e692e7cee306e39a05459d2173edd9f0a4843ca9c04dcb8bddc9643f',0);
INSERT INTO "schema_version" VALUES(2,'tasks',1795873879677,'1045fa6aa41a360e1ea2da28e98c02b869acd19f3fb232c84aeda56e9f306ad5',0);
INSERT INTO "schema_version" VALUES(3,'identity',1795873879677,'6825c9171706ac7637beb779c2ee8b510e0c9ed7cbaa3e0e8b856462467a4457',0);
INSERT INTO "schema_version" VALUES(4,'many_rows',1795873879677,'c3cb9f68bc211b400df2f79ede6ba0ca2a85f60f675ac3b94f4c0c42be350f52',0);
INSERT INTO "schema_version" VALUES(5,'sessions',1795873879677,'177cdcbf67c565e785b4db803171bb49446024e3d68100ee02ba6eab576b6936',0);
INSERT INTO "schema_version" VALUES(6,'audit',1795873879677,'c5109174576ffe856953c5ad9df0f6f1e12f7b6d4d6ab81555a4125d6dc163ad',0);
INSERT INTO "schema_version" VALUES(7,'money',1795873879677,'a8fd4dd38af97623c8eb80820ff28265d006993f47c82140c007941fd2b80287',0);
INSERT INTO "schema_version" VALUES(8,'kept_answers',1795873879677,'41515e4b6fbccf1421edb747ee92e8372be2254c4a5aa69f0cb9c3a2fe5e469b',0);
INSERT INTO "schema_version" VALUES(9,'upstreams',1795873879677,'b7d7306c5add83edbc32fc5a135c6bb07fad91cecd101d0875b61180e287315a',0);
INSERT INTO "schema_version" VALUES(10,'calls',1795873879677,'39b07925fe223d557c1632cc6263110742fc5ff6ce07be8ae8c8d4acfdde0635',0);
INSERT INTO "schema_version" VALUES(11,'kept_calls',1795873879677,'ff03e25735d5a8cca0012469f45ea61035e2169114a2e87e849f04653f982b22',0);
INSERT INTO "schema_version" VALUES(12,'last_calls',1795873879677,'7163608444f592fbd69999a1d63bce6f9c68c51293d8f1db9f34ddc5cb20e400',0);
INSERT INTO "schema_version" VALUES(13,'nodes',1795873879677,'5510975db91091763b5906fe6546fe8571bacb13c01fc055ac75d44d009828b3',0);
INSERT INTO "schema_version" VALUES(14,'swept_rows',1795873879677,'f31516befdca496d3c8532fff50e374d7093b63323d0656e9794acd26a1bfc90',1);
INSERT INTO "schema_version" VALUES(15,'letters',1795873879677,'1c1b2e4a5e0894f306cab5040eb8717313038d654f8c9bd75e33d6a1bb41479e',0);
INSERT INTO "schema_version" VALUES(16,'shared_secrets',1795873879677,'a025ab6bd3847ece6d3f7b337a8d2e24ddab09d9fb6f798cddf72d1b3359db3a',1);
INSERT INTO "schema_version" VALUES(17,'nodes_seen',1795873879677,'8ee482d7a57d38e9ca6862a4288798f303bcc79611ce93c21b9de17aa68f5829',1);
INSERT INTO "schema_version" VALUES(18,'conversations',1795873879677,'0357f8b1a56b5e12f58721458fef4f15fa78e0600a35115002987b7092da3484',1);
INSERT INTO "schema_version" VALUES(19,'seals',1795873879677,'e401b83ae29edbcff2341ff50be5bfa7bd75a6568c3f466eb6af3dc267cf3c32',0);
CREATE TABLE session_watches (
  id_hash  TEXT NOT NULL REFERENCES shared_sessions (id_hash) ON DELETE CASCADE,
  uri_hash TEXT NOT NULL,                      -- SHA-256
  sealed   BLOB NOT NULL,
  PRIMARY KEY (id_hash, uri_hash)
);
CREATE TABLE shared_sessions (
  id_hash    TEXT PRIMARY KEY,                 -- SHA-256
  caller     TEXT NOT NULL,
  log_level  TEXT,                             -- NULL: what it begins with
  reader     TEXT,                             -- the node at which its client reads what belongs to no request
  expires_at BIGINT NOT NULL
);
CREATE TABLE signing_keys (
  kid            TEXT PRIMARY KEY,
  algorithm      TEXT NOT NULL,
  public_jwk     TEXT NOT NULL,
  sealed_private TEXT NOT NULL,                -- AES-GCM under a subkey of the key file, base64
  created_at     BIGINT NOT NULL,
  signs_from     BIGINT NOT NULL,
  retires_at     BIGINT                        -- dropped from the JWKS after this
, seal TEXT NOT NULL DEFAULT '');
INSERT INTO "signing_keys" VALUES('DDveyl0mavuitzKOXZUg7wtWD3srsDKZ2wFNkA8xR5o','ES256','{"crv":"P-256","kty":"EC","x":"WKSbJdt8GnTCMVkmaIO6rvBMqF-AOADq-7GIFzDXOXI","y":"YxcWgnld_tTBQT2S478HKDa9s1Vakduw1NEB3CCHpm0","kid":"DDveyl0mavuitzKOXZUg7wtWD3srsDKZ2wFNkA8xR5o","alg":"ES256","use":"sig"}','a3+oeRcr8HTvwdF0+kQTVzrgOxfCL1f+zxQLlbfJisk3QT+EsdI4wjoX+Gp29+yJcrhSRWiG7ND8L4cBD4x7nJhM9iCgB/r3YZ0tDCNrREwNtkAgFS4RCK1t8sjkzX/b1LEg8jiS4X7mYuZJsf6VHVpayQTkTurwsIAeHXo+R+ymwk+qzz9+dBDBapEu916WDftmrFW/tKX6r6RHjXIqSODh5pFXNAQ/eF9WV/2O2lJ1sl/AAhZWm9o+2Feb1gT3otLEMEpf67+Sabbx',1795873880313,1795873880313,NULL,'2e789fa5f8b0ddfa90061caec0afaaa9273ee42b82b1da1cc58c51e7526ce811');
CREATE TABLE silent_nodes (
  boot_id    TEXT PRIMARY KEY,
  name       TEXT NOT NULL,
  home       TEXT NOT NULL,
  address    TEXT NOT NULL,
  version    TEXT NOT NULL,
  started_at BIGINT NOT NULL,
  place      TEXT NOT NULL,
  worker     BIGINT NOT NULL,
  heard_at   BIGINT NOT NULL    -- when it said last that it lives, by the database's clock
);
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
CREATE TABLE tool_uses (
  server    TEXT NOT NULL,
  tool      TEXT NOT NULL,
  called_at BIGINT NOT NULL,
  PRIMARY KEY (server, tool)
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
  obtained_by TEXT NOT NULL, refresher TEXT, refreshing_until BIGINT NOT NULL DEFAULT 0,
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
, tools TEXT NOT NULL DEFAULT '', expires_at BIGINT, invited_by TEXT, last_seen_at BIGINT, seal TEXT NOT NULL DEFAULT '');
INSERT INTO "users" VALUES('usr_ssr5bibbmnuapedzkerj','owner','owner','unclaimed',NULL,'*',1795873880313,'',NULL,NULL,NULL,'5fcdfe5d652c10e363560bc5139d76b2222ac99206c591a8851d4dbccc793655');
INSERT INTO "users" VALUES('usr_pnfdhhmivmsvvkry4ch5','ada','user','invited',NULL,'mcp mcp:tools mcp:resources',1795873880985,'',NULL,'local:0',NULL,'6202f635cf758beb0c1ce0228c4dc242368396426103f32129b7c544f1479927');
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
INSERT INTO "wallets" VALUES('user:usr_ssr5bibbmnuapedzkerj','USD',1000000,0,1795873881779,1795873881779);
CREATE TABLE writers_turn (
  nobody INTEGER
);
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
CREATE INDEX kept_calls_by_expiry ON kept_calls (expires_at);
CREATE INDEX kept_calls_kept ON kept_calls (caller, answered_at, answer_bytes) WHERE answer_bytes > 0;
CREATE INDEX grants_by_last_call ON grants (called_at) WHERE called_at IS NOT NULL;
CREATE INDEX tool_uses_by_age ON tool_uses (called_at);
CREATE INDEX grants_ended ON grants (revoked_at, id) WHERE revoked_at IS NOT NULL;
CREATE INDEX grants_living ON grants (created_at, id) WHERE revoked_at IS NULL;
CREATE INDEX browser_sessions_by_age ON browser_sessions (created_at);
CREATE INDEX device_codes_by_client ON device_codes (client_id);
CREATE INDEX authorization_codes_by_client ON authorization_codes (client_id);
CREATE INDEX pushed_requests_by_client ON pushed_requests (client_id);
CREATE INDEX consents_by_client ON consents (client_id);
CREATE INDEX letters_by_age ON letters (at);
CREATE INDEX shared_sessions_by_caller ON shared_sessions (caller, expires_at);
CREATE INDEX shared_sessions_by_expiry ON shared_sessions (expires_at);
CREATE INDEX silent_nodes_by_age ON silent_nodes (heard_at);
CREATE INDEX conversations_by_owner ON conversations (owner, used_at);
CREATE INDEX conversations_by_agent ON conversations (agent, used_at);
CREATE INDEX conversations_by_expiry ON conversations (expires_at);
CREATE INDEX audit_of_rights ON audit (seq) WHERE event IN ('api_key.created', 'api_key.revoked', 'user.disabled', 'user.enabled',
  'user.locked', 'user.unlocked', 'user.removed');
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('audit',13);
INSERT INTO "sqlite_sequence" VALUES('changes',3);
COMMIT;
