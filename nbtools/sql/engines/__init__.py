"""What runs a judged statement, read-only whatever the verdict said: the second wall."""
