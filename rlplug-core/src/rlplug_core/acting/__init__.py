"""Agents: they turn observations into actions, by sampling from a policy, epsilon-greedily, or with noise.

Nothing here learns; training belongs to `learning` and to the algorithms.
"""
