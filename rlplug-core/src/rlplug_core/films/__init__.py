"""Episodes that are watched: played with a policy, shown in a window, filmed.

Training goes by what is counted alone, and nothing of it lives here.
"""
