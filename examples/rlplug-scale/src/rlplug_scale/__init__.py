"""REDQ and DroQ: soft actor-critic with many updates per step."""
