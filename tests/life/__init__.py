"""Random long life of the whole product: `make soak`, and docs/soak.md."""
