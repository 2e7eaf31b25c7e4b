"""Buffers: they take steps and hand out the batches that are due, rollouts or replayed transitions.

Nothing here computes losses or steps an environment.
"""
