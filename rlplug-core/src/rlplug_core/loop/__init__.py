"""The training loop: actors, the runners `sync` and `async`, evaluation, controllers, and what happens by the clock.

Nothing here writes files; `runs` records what happens.
"""
