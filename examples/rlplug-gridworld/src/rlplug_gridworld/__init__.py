"""Grid worlds whose shortest paths are known, as a plugin of rlplug."""
