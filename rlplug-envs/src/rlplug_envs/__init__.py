"""rlplug-envs."""
