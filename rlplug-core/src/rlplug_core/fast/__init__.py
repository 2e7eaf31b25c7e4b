"""The fast room: the same results as the plain rooms, sooner. Arrays that know their gradients, traced networks, numba
loops, CUDA graphs. Plain rooms import nothing of it; they reach it by `accelerator` only."""
