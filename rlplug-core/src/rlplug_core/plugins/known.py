"""Plugins that are known to exist, installed or not: ids and the distributions they come in, for suggestions."""

from __future__ import annotations

from rlplug_core.plugins.records import Group

ALGORITHMS = (
    "a2c", "a3c", "crossq", "ddpg", "dqn", "nstep-q", "ppo", "sac", "sac-discrete", "td3", "tqc", "vqn", "vsarsa",
)  # fmt: skip
KNOWN: dict[Group, dict[str, str]] = {
    "algorithms": dict.fromkeys(ALGORITHMS, "rlplug-algos"),
    "envs": {"gymnasium": "rlplug-envs"},
    "wrappers": {},
    "hooks": {"mlflow": "rlplug-cli"},
}


def install_line(distribution: str) -> str:
    """What to type to get a distribution."""
    return f"python -m pip install {distribution}"
