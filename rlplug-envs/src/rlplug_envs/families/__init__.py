"""Families of environments: what each needs beyond the Gymnasium interface."""
