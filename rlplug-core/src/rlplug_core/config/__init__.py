"""Options: how an author declares them, how they are parsed, and the schedules that they may follow.

Nothing here knows networks, environments or runs.
"""
