"""Saves and restores the state of environments, attribute by attribute. Simulators are in `families`."""
