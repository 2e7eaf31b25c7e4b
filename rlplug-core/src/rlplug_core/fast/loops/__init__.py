"""Loops over numbers that numba compiles. Imported only if numba can compile (`numba_loops.available`)."""
