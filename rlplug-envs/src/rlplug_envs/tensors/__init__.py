"""Environments whose rows are torch tensors on a device: their adapter, and first-party worlds; no host copies."""
