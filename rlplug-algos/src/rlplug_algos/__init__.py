"""rlplug-algos."""
