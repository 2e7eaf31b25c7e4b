"""Imports what a run imports, once for all processes that are forked."""

import gymnasium.envs.classic_control  # noqa: F401
import pyarrow.parquet  # noqa: F401

import rlplug_envs  # noqa: F401
