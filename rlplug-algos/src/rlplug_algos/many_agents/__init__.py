"""Algorithms for many agents in one world."""
