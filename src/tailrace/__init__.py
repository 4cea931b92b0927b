"""Tailrace: change data capture for Spark."""
