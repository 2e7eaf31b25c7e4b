"""Multi-agent algorithms."""
