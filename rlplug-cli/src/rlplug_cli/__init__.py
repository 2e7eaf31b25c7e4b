"""rlplug-cli."""
