"""Random network distillation as a plugin of rlplug."""
