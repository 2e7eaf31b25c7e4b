"""The cross-entropy method as a plugin of rlplug."""
