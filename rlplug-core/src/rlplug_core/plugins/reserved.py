"""Option names that belong to every run or to the command line; no algorithm may use them."""

from __future__ import annotations

from collections.abc import Iterable

from rlplug_core.errors import BadConfig

#: The fields of `run_options.RunOptions`, as plain names: looking at an index must not import what configurations need.
RUN_OPTIONS = frozenset(
    {
        "actor_device",
        "actors",
        "checkpoint_every",
        "chunk_steps",
        "compile",
        "controller",
        "cpus_per_actor",
        "cudagraphs",
        "dataset",
        "dataset_share",
        "device",
        "early_stopping_patience",
        "env_workers",
        "eval_env",
        "eval_episodes",
        "eval_every",
        "eval_wrap",
        "final_eval_episodes",
        "freeze",
        "gpus",
        "hook",
        "inference_backend",
        "init",
        "init_parts",
        "inline",
        "keep_checkpoints",
        "learners",
        "log",
        "log_every",
        "log_every_episodes",
        "lr_factor",
        "lr_patience",
        "max_episodes",
        "max_lag",
        "max_seconds",
        "min_delta",
        "num_envs",
        "offline",
        "on",
        "patience_start",
        "record_every",
        "resume_exact",
        "runner",
        "seed",
        "stats_window_size",
        "target_return",
        "threads",
        "total_timesteps",
        "worker_timeout",
        "workers",
        "wrap",
    }
)
#: More options of `rlplug run` itself.
COMMAND_LINE = frozenset(
    {
        "algorithm",
        "config",
        "critic_net",
        "env",
        "help",
        "jobs",
        "json",
        "name",
        "net",
        "out",
        "print_config",
        "quiet",
        "seeds",
        "set",
        "traceback",
        "until",
    }
)
RESERVED = RUN_OPTIONS | COMMAND_LINE


def check_options(algorithm: str, names: Iterable[str]) -> None:
    """Refuse an algorithm's options that every run has.

    Raises:
        BadConfig: there is one; it says which.
    """
    if clash := (RUN_OPTIONS | {"algorithm", "env"}) & {*names}:
        raise BadConfig(
            f"{algorithm} redefines the run option '{min(clash)}'; its author must rename it"
        )
