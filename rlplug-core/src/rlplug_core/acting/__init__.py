"""Agents: they turn observations into actions, by a policy's head, by epsilon-greedy choice or with noise.

Nothing here learns; training belongs to `learning` and to the algorithms.
"""
