"""Algorithms that follow the gradient of a policy's return, on rollouts: one file each."""
