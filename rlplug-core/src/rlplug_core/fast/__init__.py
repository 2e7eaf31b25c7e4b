"""The fast room computes the results of the plain rooms in less time: arrays with gradients, traced networks, numba
loops, CUDA graphs. Plain rooms do not import it; they reach it by `accelerator` only."""
