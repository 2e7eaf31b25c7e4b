"""Many runs as one: their tasks, the places that run them, their progress; `rlplug run --seeds` and `sweep`.

`compare/` reports their results; `tune/` searches for better options.
"""
