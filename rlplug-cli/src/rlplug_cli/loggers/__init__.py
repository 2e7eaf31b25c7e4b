"""Loggers: hooks of runs with `--log`, which copy the journal for another tool."""
