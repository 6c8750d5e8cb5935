-- For the sweep, which looks for what is due and for deletions that are old enough.
CREATE INDEX nbtools_items_due ON nbtools_items (expires) WHERE value IS NOT NULL;
CREATE INDEX nbtools_items_gone ON nbtools_items (updated) WHERE value IS NULL;
