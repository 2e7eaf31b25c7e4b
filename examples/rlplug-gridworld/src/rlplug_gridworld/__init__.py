"""Grid worlds with known shortest paths, as a plugin of rlplug."""
