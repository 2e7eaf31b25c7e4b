"""A policy on its own: what a trained network computes, as JSON and safetensors, and how that acts.

It needs neither the algorithm's plugin nor any class that made the network. Training has no part in it.
"""
