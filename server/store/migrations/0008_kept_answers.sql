-- Answers of priced calls that are kept: how large they are, so that they can be bounded without being read.

ALTER TABLE charges ADD COLUMN answer_bytes BIGINT NOT NULL DEFAULT 0;   -- of the answer as it is kept; 0: none is
UPDATE charges SET answer_bytes = length(answer) WHERE answer IS NOT NULL;

-- What is kept for a caller is added up from this alone; those that were fully given are in it in the order in which they make room.
CREATE INDEX charges_kept ON charges (caller, answered_at, answer_bytes) WHERE answer_bytes > 0;
