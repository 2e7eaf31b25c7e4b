"""Runs: `train`, `resume` and `load`, the run directory with its checkpoints and its journal.

Nothing here steps an environment itself; `loop` does.
"""
