"""Populations: members that train in chunks, exchanges between chunks, the result.

A member's run is a task of a sweep; `sweep/` runs them.
"""
