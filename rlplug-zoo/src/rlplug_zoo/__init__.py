"""Agents that rlplug trained with its presets; this package has data and no code.

`rlplug pull zoo:` lists them, `rlplug play zoo:ppo/CartPole-v1` plays one.
"""
