"""GTrXL, a gated transformer as a memory for rlplug."""
