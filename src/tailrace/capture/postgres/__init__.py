"""Changes of a PostgreSQL database, by logical replication and reads of key ranges."""
