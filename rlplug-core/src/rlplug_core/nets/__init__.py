"""Networks: encoders, policies, critics, action values, their heads, and the normalization of what they see.

Nothing here holds an optimizer or a loss.
"""
