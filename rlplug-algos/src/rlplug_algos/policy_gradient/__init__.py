"""Policy gradient algorithms, which learn from rollouts: one file each."""
