"""Shared agents: their sources, their files with limits and hashes, and the places that store them.

Nothing here loads or plays an agent; `runs` does.
"""
