"""RLPD: soft actor-critic on a data set and its own steps together."""
