-- additive
-- What processes that share one database do for all of them: certificates from an authority, and refreshing a login at an upstream. Where
-- there is one process, nothing is written here. Times are milliseconds since 1970.

-- Certificates. Each text is sealed: keys are among them.
CREATE TABLE acme_kept (
  what    TEXT PRIMARY KEY,    -- certificate, order, rest, proofs, state, wish; account: and revocation: with a digest
  sealed  TEXT NOT NULL,       -- AES-256-GCM
  version BIGINT NOT NULL      -- raised with each write
);

-- Who shows the proofs of names that an authority is about to look at.
CREATE TABLE acme_known (
  boot_id TEXT PRIMARY KEY,
  proofs  BIGINT NOT NULL      -- the version that it shows
);

-- Who refreshes the login just now, and until when nobody else does. A refresh token is good for one use.
ALTER TABLE upstream_tokens ADD COLUMN refresher TEXT;
ALTER TABLE upstream_tokens ADD COLUMN refreshing_until BIGINT NOT NULL DEFAULT 0;
