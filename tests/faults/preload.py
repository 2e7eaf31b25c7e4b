"""Imports the modules of a run once for all forked processes."""

# ruff: noqa: F401
import gymnasium.envs.classic_control
import pyarrow.parquet

import rlplug_algos.off_policy.sac
import rlplug_algos.policy_gradient.a2c
import rlplug_algos.value.dqn
import rlplug_cli.app
import rlplug_cli.commands.resume
import rlplug_cli.commands.run
import rlplug_cli.training
import rlplug_core.loop.async_inline
import rlplug_core.runs.api
import rlplug_core.testing.envs
