-- Keys and ids sort by code point, as everywhere: hence the collation "C".
CREATE TABLE nbtools_items (
    id text COLLATE "C" PRIMARY KEY, scope text COLLATE "C" NOT NULL,
    agent_id text NOT NULL, workflow_id text, node_id text, key text COLLATE "C" NOT NULL,
    op text NOT NULL, value text, tags text[] NOT NULL,
    created bigint NOT NULL, updated bigint NOT NULL, expires bigint, version bigint NOT NULL,
    -- The size is for ranking by the length of records.
    vector float8[], words tsvector NOT NULL, size integer NOT NULL DEFAULT 0
);
CREATE INDEX nbtools_items_key ON nbtools_items (scope, key);
CREATE INDEX nbtools_items_tags ON nbtools_items USING gin (tags);
CREATE INDEX nbtools_items_words ON nbtools_items USING gin (words);
CREATE TABLE nbtools_history (
    id text COLLATE "C" NOT NULL, agent_id text NOT NULL, workflow_id text, node_id text, key text NOT NULL,
    op text NOT NULL, value text, tags text[] NOT NULL,
    created bigint NOT NULL, updated bigint NOT NULL, expires bigint, version bigint NOT NULL,
    PRIMARY KEY (id, version)
);
CREATE TABLE nbtools_requests (id text PRIMARY KEY, answer text NOT NULL, at bigint NOT NULL);
CREATE INDEX nbtools_requests_at ON nbtools_requests (at);
CREATE TABLE nbtools_calls (
    seq bigint GENERATED ALWAYS AS IDENTITY, call_id text PRIMARY KEY, run_id text, tool text, record text NOT NULL
);
CREATE INDEX nbtools_calls_seq ON nbtools_calls (seq);
-- For the sweep, which looks for what is due and for deletions that are old enough.
CREATE INDEX nbtools_items_due ON nbtools_items (expires) WHERE value IS NOT NULL;
CREATE INDEX nbtools_items_gone ON nbtools_items (updated) WHERE value IS NULL;
CREATE INDEX nbtools_items_size ON nbtools_items (scope) INCLUDE (size, expires) WHERE value IS NOT NULL;
-- For words that are misspelt.
CREATE TABLE nbtools_words (word text COLLATE "C" PRIMARY KEY, letters text[] NOT NULL);
CREATE INDEX nbtools_words_letters ON nbtools_words USING gin (letters);
