"""Shared agents: the source words, the files of an agent with their limits and hashes, and the places that have them.

Nothing here loads or plays an agent; `runs` does.
"""
