"""Pipelines: one Structured Streaming query that keeps feeds and mirrors in step with a source."""
