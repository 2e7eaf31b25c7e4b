"""Buffers: they store steps and return due batches, rollouts or replayed transitions.

Nothing here computes losses or steps an environment.
"""
