-- Rows that let somebody in, or say what they may, are sealed: HMAC-SHA-256 under a subkey of the key file, over the columns that say so.
-- Empty: not sealed, so that the row lets nobody in; or the row is over. A database of before is sealed at the machine: `ostiary store seal`.

ALTER TABLE users ADD COLUMN seal TEXT NOT NULL DEFAULT '';
ALTER TABLE api_keys ADD COLUMN seal TEXT NOT NULL DEFAULT '';
ALTER TABLE browser_sessions ADD COLUMN seal TEXT NOT NULL DEFAULT '';
ALTER TABLE one_time_links ADD COLUMN seal TEXT NOT NULL DEFAULT '';
ALTER TABLE passkeys ADD COLUMN seal TEXT NOT NULL DEFAULT '';
ALTER TABLE clients ADD COLUMN seal TEXT NOT NULL DEFAULT '';
ALTER TABLE grants ADD COLUMN seal TEXT NOT NULL DEFAULT '';
ALTER TABLE authorization_codes ADD COLUMN seal TEXT NOT NULL DEFAULT '';
ALTER TABLE device_codes ADD COLUMN seal TEXT NOT NULL DEFAULT '';
ALTER TABLE consents ADD COLUMN seal TEXT NOT NULL DEFAULT '';
ALTER TABLE signing_keys ADD COLUMN seal TEXT NOT NULL DEFAULT '';

-- What the trail says of accounts and keys, to compare them with.
CREATE INDEX audit_of_rights ON audit (seq) WHERE event IN ('api_key.created', 'api_key.revoked', 'user.disabled', 'user.enabled',
  'user.locked', 'user.unlocked', 'user.removed');
