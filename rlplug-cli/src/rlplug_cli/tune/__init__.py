"""The search for an algorithm's best options: ranges, the study, its trials, what comes of it.

A trial's runs are tasks of a sweep; how they are carried out lies in `sweep/`.
"""
