-- additive
-- What each process on one database says of itself as it says that it lives, and which ones fell silent: for whoever looks after them.

ALTER TABLE nodes ADD COLUMN place TEXT NOT NULL DEFAULT '';    -- the same for the workers of one parent
ALTER TABLE nodes ADD COLUMN worker BIGINT NOT NULL DEFAULT 0;  -- its number among them; 0: it is the only process there
ALTER TABLE nodes ADD COLUMN state TEXT NOT NULL DEFAULT '';    -- starting, serving, troubled or draining; '': a version that does not say
ALTER TABLE nodes ADD COLUMN trouble TEXT NOT NULL DEFAULT '';  -- what is wrong with it, in words

-- They were found dead, and have neither said goodbye nor come back.
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
CREATE INDEX silent_nodes_by_age ON silent_nodes (heard_at);
