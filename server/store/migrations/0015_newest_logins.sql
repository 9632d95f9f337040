-- Ways to few of very many logins. Their columns stay as they are while a login is used, so that a refresh writes to none of them.

CREATE INDEX grants_newest ON grants (created_at, id) WHERE revoked_at IS NULL;              -- everybody's, in pages
CREATE INDEX grants_revoked ON grants (revoked_at, id) WHERE revoked_at IS NOT NULL;         -- those to be swept
