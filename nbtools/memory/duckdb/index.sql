CREATE TABLE live (
    n INTEGER PRIMARY KEY, scope INTEGER, key TEXT, expires INTEGER, tags TEXT, seq INTEGER, op TEXT, created INTEGER,
    updated INTEGER, version INTEGER, value TEXT, checksum INTEGER, UNIQUE (scope, key)
);
CREATE TABLE tagged (scope INTEGER, tag TEXT, key TEXT, PRIMARY KEY (scope, tag, key)) WITHOUT ROWID;
CREATE TABLE scopes (n INTEGER PRIMARY KEY, prefix TEXT);
CREATE TABLE facts (version TEXT, seq INTEGER);
