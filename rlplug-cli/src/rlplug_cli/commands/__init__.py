"""One file per command; a command imports what it needs when it is called."""
