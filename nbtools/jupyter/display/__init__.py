"""What people see: tables, cards, results, and output while work runs."""
