"""Events of runs as JSON lines, as a plugin of rlplug."""
