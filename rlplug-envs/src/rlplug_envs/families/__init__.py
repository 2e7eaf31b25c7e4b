"""Families of environments, with the parts that each needs beyond the Gymnasium interface."""
