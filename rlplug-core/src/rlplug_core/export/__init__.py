"""Exported policies: the program of a trained network as JSON and safetensors, and an agent that runs it.

An exported policy needs neither the plugin of its algorithm nor the classes of its network. Training is elsewhere.
"""
