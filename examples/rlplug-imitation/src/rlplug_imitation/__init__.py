"""Behavioral cloning, DAgger and GAIL: learning from an expert."""
