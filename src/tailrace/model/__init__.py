"""The vocabulary every layer shares: changes, positions, tables, secrets, errors. No I/O."""
