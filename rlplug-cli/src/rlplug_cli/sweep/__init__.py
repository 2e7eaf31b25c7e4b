"""Many runs as one: which there are, where they are carried out, how far they are; `rlplug run --seeds` and `sweep`.

What comes of them is told in `compare/`; which options to try next is found in `tune/`.
"""
