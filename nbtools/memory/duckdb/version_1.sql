-- The newest row of every id ever written, deletions included (value is NULL): the version of a key counts on.
-- One text id is the key, because a composite one makes point reads five times slower at a million rows.
CREATE TABLE items (
    id VARCHAR PRIMARY KEY, agent_id VARCHAR NOT NULL, workflow_id VARCHAR, node_id VARCHAR, key VARCHAR NOT NULL,
    op VARCHAR NOT NULL, value VARCHAR, tags VARCHAR[] NOT NULL,
    created BIGINT NOT NULL, updated BIGINT NOT NULL, expires BIGINT, version BIGINT NOT NULL,
    seq BIGINT NOT NULL, vector FLOAT[]
);
CREATE TABLE log (
    seq BIGINT NOT NULL, request VARCHAR NOT NULL, place INTEGER NOT NULL, id VARCHAR NOT NULL, op VARCHAR NOT NULL,
    value VARCHAR, tags VARCHAR[] NOT NULL, created BIGINT NOT NULL, updated BIGINT NOT NULL, expires BIGINT,
    version BIGINT NOT NULL
);
CREATE TABLE calls (
    call_id VARCHAR PRIMARY KEY, seq BIGINT NOT NULL, run_id VARCHAR, tool VARCHAR, record VARCHAR NOT NULL
);
CREATE VIEW memory AS
    SELECT id, agent_id, workflow_id, node_id, key, value, tags, make_timestamp(created) AS created_at,
           make_timestamp(updated) AS updated_at, make_timestamp(expires) AS expires_at, version
    FROM items WHERE value IS NOT NULL;
