"""Plugins that are known to exist, installed or not: ids and the distributions they come in, for suggestions."""

from __future__ import annotations

from rlplug_core.plugins.records import Group

_ALGORITHMS = (
    "a2c",
    "a3c",
    "acer",
    "acer-continuous",
    "acktr",
    "apex",
    "appo",
    "c51",
    "cql",
    "crossq",
    "ddpg",
    "ddqn",
    "dqn",
    "dueling-dqn",
    "fast-sac",
    "fast-td3",
    "impala",
    "independent",
    "iql",
    "iqn",
    "mappo",
    "noisy-dqn",
    "nstep-dqn",
    "nstep-q",
    "per-dqn",
    "ppo",
    "ppo-recurrent",
    "pqn",
    "qrdqn",
    "r2d2",
    "rainbow",
    "rainbow-iqn",
    "sac",
    "sac-discrete",
    "self-play",
    "td3",
    "tqc",
    "trpo",
    "vac",
    "vpg",
    "vqn",
    "vsarsa",
)
_WRAPPERS = (
    "action-repeat",
    "atari",
    "clip-reward",
    "episodic-life",
    "flatten",
    "frame-stack",
    "normalize-obs",
    "pad-agents",
    "random-opponents",
    "scale-reward",
    "sticky-actions",
    "time-feature",
    "time-limit",
    "world-state",
)
KNOWN: dict[Group, dict[str, str]] = {
    "algorithms": dict.fromkeys(_ALGORITHMS, "rlplug-algos"),
    "envs": dict.fromkeys(
        (
            "brax",
            "envpool",
            "gymnasium",
            "gymnax",
            "jumanji",
            "pettingzoo",
            "playground",
            "tensor",
        ),
        "rlplug-envs",
    ),
    "wrappers": dict.fromkeys(_WRAPPERS, "rlplug-envs"),
    "controllers": dict.fromkeys(("early-stopping", "plateau", "target-return"), "rlplug-core"),
    "memories": dict.fromkeys(("gru", "lstm"), "rlplug-core"),
    "networks": {"impala-cnn": "rlplug-core"},
    "populations": {"truncation": "rlplug-core"},
    "hooks": {"mlflow": "rlplug-cli"},
    "loggers": dict.fromkeys(("csv", "tensorboard", "wandb"), "rlplug-cli"),
}


def install_line(distribution: str) -> str:
    """Return the command that installs a distribution."""
    return f"python -m pip install {distribution}"
