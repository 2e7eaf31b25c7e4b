"""Networks: encoders, policies, critics, action values, their heads, and the normalization of their inputs.

Nothing here holds an optimizer or a loss.
"""
