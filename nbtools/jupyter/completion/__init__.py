"""What people are offered while they write a magic's line or a query."""
