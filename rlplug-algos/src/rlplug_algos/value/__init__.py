"""Algorithms that learn action values or their distributions: one file each."""
