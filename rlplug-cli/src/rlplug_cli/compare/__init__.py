"""Everything between run directories and a comparison: curves, statistics, tables, pictures, one page.

How runs are made lies elsewhere (`sweep/`, `tune/`); what a terminal shows of a comparison is `tables` here.
"""
