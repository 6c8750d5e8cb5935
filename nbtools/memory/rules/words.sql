CREATE VIRTUAL TABLE words USING fts5(text, content='', tokenize="porter ascii tokenchars '_'");
CREATE TABLE tag_numbers (n INTEGER PRIMARY KEY, tag TEXT UNIQUE);
CREATE TABLE vocabulary (n INTEGER PRIMARY KEY, word TEXT UNIQUE);
CREATE VIRTUAL TABLE parts USING fts5(letters, content='', tokenize="ascii tokenchars '^$'");
INSERT INTO words (words, rank) VALUES ('automerge', 0);
