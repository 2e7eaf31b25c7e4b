"""One file per command; a command imports its dependencies when it runs."""
