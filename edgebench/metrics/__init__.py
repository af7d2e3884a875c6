"""Metrics: pure functions of records. What is unknown is None, never 0."""
