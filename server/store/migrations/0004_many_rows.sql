-- Ways to find few rows among very many.

CREATE INDEX clients_by_age ON clients (created_at, id);                                       -- their list, in pages
CREATE INDEX grants_not_ended ON grants (subject, expires_at) WHERE revoked_at IS NULL;        -- how many one person has
CREATE INDEX clients_unused ON clients (created_at, id) WHERE kind = 'dynamic' AND authorized_at IS NULL;
