"""Plays episodes with a policy, shows them in a window and films them.

Nothing here influences training.
"""
