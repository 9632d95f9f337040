-- Money: the books, what calls cost, what was paid for them. Amounts are whole micros (millionths of a dollar) unless they say
-- otherwise. Times are milliseconds since 1970. Hashes and MACs are lower-case hex. BLOB here is what PostgreSQL spells BYTEA.

CREATE TABLE wallets (                         -- what somebody has here
  id         TEXT PRIMARY KEY,                 -- whose: user:…, client:…, token:…, payer:…
  currency   TEXT NOT NULL,
  balance    BIGINT NOT NULL CHECK (balance >= 0),
  held       BIGINT NOT NULL CHECK (held >= 0 AND held <= balance),   -- for calls under way
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);

CREATE TABLE accounts (                        -- the books' other side: what movements brought, less what they took
  id       TEXT PRIMARY KEY,                   -- chain:<network>:<asset>, revenue:<server>/<tool>, granted, paid-out, …
  currency TEXT NOT NULL,
  balance  BIGINT NOT NULL
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
CREATE INDEX movements_from ON movements (source, seq);
CREATE INDEX movements_to ON movements (target, seq);
-- One of its kind for each charge and payment: what is asked for twice is booked once. What is taken back may be so in parts.
CREATE UNIQUE INDEX movements_of_charge ON movements (charge_id, kind) WHERE charge_id IS NOT NULL AND refers IS NULL;
CREATE UNIQUE INDEX movements_of_payment ON movements (payment_id, kind) WHERE payment_id IS NOT NULL AND refers IS NULL;
CREATE INDEX movements_taken_back ON movements (refers) WHERE refers IS NOT NULL;

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
CREATE UNIQUE INDEX charges_standing ON charges (call_key) WHERE stands = 1;
CREATE INDEX charges_by_expiry ON charges (expires_at);
CREATE INDEX charges_under_way ON charges (owner) WHERE owner IS NOT NULL;

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
CREATE INDEX payments_by_expiry ON payments (expires_at);
CREATE INDEX payments_unsettled ON payments (next_try_at) WHERE state IN ('settling', 'unknown');
CREATE INDEX payments_under_way ON payments (owner) WHERE owner IS NOT NULL;

CREATE TABLE meters (                          -- counts that have a limit: free calls, quotas, money spent
  subject    TEXT NOT NULL,                    -- whose, and of what: wallet:…/trial/<server>/<tool>, login:…, …
  period     TEXT NOT NULL,                    -- 2026-11, 2026-11-22, or ever
  amount     BIGINT NOT NULL CHECK (amount >= 0),
  expires_at BIGINT NOT NULL,
  PRIMARY KEY (subject, period)
);
CREATE INDEX meters_by_expiry ON meters (expires_at);

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
CREATE INDEX plan_grants_by_wallet ON plan_grants (wallet);

CREATE TABLE spend_caps (                      -- what somebody may spend, beyond what the settings say
  subject    TEXT NOT NULL,                    -- login:<grant>, wallet:<id>, wallet:<id>/tool:<server>/<tool>
  period     TEXT NOT NULL,                    -- day | month | ever
  amount     BIGINT NOT NULL,
  set_by     TEXT NOT NULL,
  set_at     BIGINT NOT NULL,
  PRIMARY KEY (subject, period)
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
CREATE INDEX vouchers_by_expiry ON vouchers (expires_at);
CREATE TABLE voucher_uses (
  code_hash TEXT NOT NULL REFERENCES vouchers (code_hash) ON DELETE CASCADE,
  wallet    TEXT NOT NULL,
  used_at   BIGINT NOT NULL,
  PRIMARY KEY (code_hash, wallet)
);
