"""Captures: one folder a database, one contract for all of them."""
