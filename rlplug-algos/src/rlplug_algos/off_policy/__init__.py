"""Algorithms for continuous actions that learn from replay, and SAC for discrete ones: one file each."""
