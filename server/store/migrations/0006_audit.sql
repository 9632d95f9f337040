-- Rows of the audit trail that are swept before others: one row stands for those that were next to each other.

ALTER TABLE audit ADD COLUMN first BIGINT;             -- the first of the rows that this one stands for; NULL: an ordinary row
ALTER TABLE audit ADD COLUMN seal  TEXT;               -- HMAC over what it says of them; its mac is that of the last of them

-- Refusals of nobody in particular: no person, no login, no key. They are kept shortest, and found by this.
CREATE INDEX audit_refused_strangers ON audit (at)
  WHERE outcome = 'refused' AND grant_id IS NULL AND (actor = 'anonymous' OR substr(actor, 1, 7) = 'client:');
