"""Everything between run directories and a comparison: curves, statistics, tables, pictures, one page.

`sweep/` and `tune/` make runs. `tables` prints a comparison on a terminal.
"""
