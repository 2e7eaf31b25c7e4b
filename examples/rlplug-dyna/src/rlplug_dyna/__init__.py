"""Dyna with a learned world model as a plugin of rlplug."""
