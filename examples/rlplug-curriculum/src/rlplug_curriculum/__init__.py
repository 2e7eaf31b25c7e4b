"""A goal curriculum as a plugin of rlplug."""
