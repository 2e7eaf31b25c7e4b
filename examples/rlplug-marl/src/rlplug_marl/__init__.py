"""QMIX and VDN: Q-learning for teams of agents with one reward."""
