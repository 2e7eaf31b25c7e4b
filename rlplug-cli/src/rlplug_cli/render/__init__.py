"""Show runs on a terminal: live progress and tables."""
