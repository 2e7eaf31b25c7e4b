"""The parts of updates: return estimators, losses, target networks, optimizers, natural gradients.

Nothing here acts, stores steps or runs a loop.
"""
