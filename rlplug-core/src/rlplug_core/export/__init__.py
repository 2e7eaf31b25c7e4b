"""Exported policies: the program of a trained network as JSON and safetensors, and an agent that runs it.

An exported policy needs neither the plugin of its algorithm nor the classes of its network.
"""

from __future__ import annotations

from rlplug_core.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)
