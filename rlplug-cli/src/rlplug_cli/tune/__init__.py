"""Hyperparameter search: ranges, the study and its trials, the result.

A trial's runs are tasks of a sweep; `sweep/` runs them.
"""
