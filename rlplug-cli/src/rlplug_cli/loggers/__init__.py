"""Loggers: hooks that take part where a run names them with `--log`, and copy its journal for another tool."""
