-- Several processes on one database: who they are, and whose turn it is to write. Times are milliseconds since 1970.

-- Whoever writes holds this table for as long as its transaction lasts; nothing is ever in it. A file has one writer, who needs none.
CREATE TABLE writers_turn (
  nobody INTEGER
);

-- Who is alive: a process has its row here until it ends, or is found dead.
CREATE TABLE nodes (
  boot_id     TEXT PRIMARY KEY,
  name        TEXT NOT NULL,    -- for people: machine and process
  home        TEXT NOT NULL,    -- of the data directory, which one process at a time has
  address     TEXT NOT NULL,    -- where it is reached, for people
  version     TEXT NOT NULL,
  started_at  BIGINT NOT NULL,
  alive_until BIGINT NOT NULL   -- by the database's clock
);
