-- additive
-- Ways to the rows that are over, so that looking for some never goes through all; and from a program to what refers to it, which is looked
-- up for each one that is swept; and to the newest of very many logins. No use of a login writes to any of them.

CREATE INDEX grants_ended ON grants (revoked_at, id) WHERE revoked_at IS NOT NULL;
CREATE INDEX grants_living ON grants (created_at, id) WHERE revoked_at IS NULL;
CREATE INDEX browser_sessions_by_age ON browser_sessions (created_at);
CREATE INDEX device_codes_by_client ON device_codes (client_id);
CREATE INDEX authorization_codes_by_client ON authorization_codes (client_id);
CREATE INDEX pushed_requests_by_client ON pushed_requests (client_id);
CREATE INDEX consents_by_client ON consents (client_id);
