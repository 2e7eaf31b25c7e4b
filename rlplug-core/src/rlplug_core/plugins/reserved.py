"""Option names that belong to every run or to the command line; no algorithm may use them."""

from __future__ import annotations

#: The fields of `options.RunOptions`, as plain names: looking at an index must not import what configurations need.
RUN_OPTIONS = frozenset({
    "acting", "checkpoint_every", "compile", "device", "eval_episodes", "eval_every", "inline", "keep", "log_every",
    "max_episodes", "max_seconds", "min_improvement", "plateau", "plateau_factor", "rows", "runner", "seed",
    "stop_after", "target_return", "threads", "total_steps", "verdict_episodes", "worker_timeout", "workers", "wrap",
})  # fmt: skip
#: What `rlplug run` itself understands beside them.
COMMAND_LINE = frozenset({"config", "help", "json", "name", "net", "out", "set", "traceback"})
RESERVED = RUN_OPTIONS | COMMAND_LINE
