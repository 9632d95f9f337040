-- When somebody last called: of a login, and of a tool. Both to the minute, written with the records of calls. Times are milliseconds since 1970.

ALTER TABLE grants ADD COLUMN called_at BIGINT;  -- NULL: not yet
CREATE INDEX grants_by_last_call ON grants (called_at) WHERE called_at IS NOT NULL;

CREATE TABLE tool_uses (
  server    TEXT NOT NULL,
  tool      TEXT NOT NULL,
  called_at BIGINT NOT NULL,
  PRIMARY KEY (server, tool)
);
CREATE INDEX tool_uses_by_age ON tool_uses (called_at);

-- What the records know of the time before.
UPDATE grants SET called_at = known.at
  FROM (SELECT grant_id, max(at) AS at FROM calls WHERE grant_id IS NOT NULL GROUP BY grant_id) AS known
  WHERE known.grant_id = grants.id;
INSERT INTO tool_uses (server, tool, called_at) SELECT server, tool, max(hour) FROM call_hours GROUP BY server, tool;
