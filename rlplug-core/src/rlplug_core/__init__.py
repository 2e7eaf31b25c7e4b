"""rlplug-core."""
