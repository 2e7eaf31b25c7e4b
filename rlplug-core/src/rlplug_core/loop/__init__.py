"""The training loop: actors, the runners `sync`, `async`, `decoupled`, evaluation, controllers, events by the clock.

Nothing here writes files; `runs` records what happens.
"""
