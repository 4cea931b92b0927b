"""The Spark data source `format("tailrace")` and the session helper."""
