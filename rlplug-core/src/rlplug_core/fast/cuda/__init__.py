"""CUDA graphs of forward passes and gradient steps."""
