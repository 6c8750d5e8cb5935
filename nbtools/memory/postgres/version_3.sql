-- For ranking by the length of records, and for words that are misspelt.
ALTER TABLE nbtools_items ADD COLUMN size integer NOT NULL DEFAULT 0;
CREATE INDEX nbtools_items_size ON nbtools_items (scope) INCLUDE (size, expires) WHERE value IS NOT NULL;
CREATE TABLE nbtools_words (word text COLLATE "C" PRIMARY KEY, letters text[] NOT NULL);
CREATE INDEX nbtools_words_letters ON nbtools_words USING gin (letters);
