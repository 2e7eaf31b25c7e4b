"""Off-policy algorithms for continuous actions, and SAC for discrete ones: one file each."""
