"""Refuse options with arrays that do not fit into this machine's memory, before they are made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import prod

import numpy as np
from gymnasium import spaces

from rlplug_core.buffers.free_memory import physical, size_text
from rlplug_core.errors import BadConfig, BadEnv
from rlplug_core.nets.actions import choices
from rlplug_core.types import Space

#: The bytes of a replay buffer above which a run keeps one periodic checkpoint by default, and the usual number.
LARGE_REPLAY = 2**30
USUAL_CHECKPOINTS = 3
#: Bytes that an environment takes at the very least.
ENVIRONMENT = 2_000
#: Copies of a parameter: itself, its gradient, two moments of Adam; bytes of each.
COPIES = 4
FLOAT = 4


def check_sizes(
    options: Mapping[str, object],
    obs: Space,
    memory: int | None = None,
) -> None:
    """Compare the least memory that each option needs with the machine's memory, or with `memory` bytes.

    Args:
        options: all options of a run, by dotted name.
        obs: the space of one environment's observations.

    Raises:
        BadConfig: an option needs more; the message has the option, its size and the memory.
    """
    available = physical() if memory is None else memory
    for option, content, size in sizes(options, step_bytes(obs)):
        if size > available:
            raise BadConfig(
                f"option '{option}': {content} would take {size_text(size)} or more, and this machine has "
                f"{size_text(available)} of memory; choose a smaller one"
            )


def check_layers(
    options: Mapping[str, object],
    obs: Space,
    action: Space,
    memory: int | None = None,
) -> None:
    """Compare the first and the last layer of the network with the machine's memory, or with `memory` bytes.

    Args:
        options: all options of a run, by dotted name; without `net.hidden`, or if the network reads some keys only or
            comes from a function, nothing is known.
        obs, action: the spaces of one environment.

    Raises:
        BadEnv: a layer is larger; the message has the space, its size and the memory.
    """
    hidden = options.get("net.hidden")
    if not isinstance(hidden, list | tuple) or options.get("net.obs") or options.get("net.factory"):
        return
    available = physical() if memory is None else memory
    widths = [number(width) for width in hidden] or [1]
    for kind, count, width in (
        ("observations", inputs(obs), widths[0]),
        ("actions", choices(action), widths[-1]),
    ):
        size = count * width * FLOAT * COPIES
        if size > available:
            raise BadEnv(
                f"the network's layer for {kind} of {count:,} numbers would take {size_text(size)} or more, and this "
                f"machine has {size_text(available)} of memory; wrap the environment so that its {kind} have fewer"
            )


def inputs(obs: Space) -> int:
    """Return how many numbers the hidden layers read of an observation; images have convolutions."""
    if isinstance(obs, spaces.Dict):
        return sum(inputs(part) for part in obs.spaces.values())
    if isinstance(obs, spaces.Discrete):
        return int(obs.n)
    if isinstance(obs, spaces.MultiDiscrete):
        return sum(int(size) for size in obs.nvec.flat)
    shape = obs.shape or ()
    return 0 if len(shape) == 3 else prod(shape)


def sizes(
    options: Mapping[str, object],
    step: int,
) -> Iterator[tuple[str, str, int]]:
    """Yield each option that makes something large: its name, the object, and its least number of bytes."""
    num_envs = number(options.get("num_envs"))
    yield "num_envs", f"{num_envs:,} environments", num_envs * max(ENVIRONMENT, step)
    buffer = number(options.get("buffer_size"))
    yield "buffer_size", f"a buffer of {buffer:,} steps", buffer * step
    rollout = number(options.get("n_steps")) * num_envs
    yield "n_steps", f"a rollout of {rollout:,} steps", rollout * step
    for name, value in options.items():
        if name.rpartition(".")[2] == "hidden" and isinstance(value, list | tuple):
            weights = sum(before * after for before, after in pairwise(map(number, value)))
            yield name, f"a network of {weights:,} weights", weights * FLOAT * COPIES


def step_bytes(obs: Space) -> int:
    """Return the least bytes of a stored step: its observation (one picture of a stack) and a reward."""
    subspaces = obs.spaces.values() if isinstance(obs, spaces.Dict) else [obs]
    return FLOAT + sum(_bytes(subspace) for subspace in subspaces)


def _bytes(part: Space) -> int:
    shape = part.shape or ()
    size = int(np.prod(shape, dtype=object)) * (
        part.dtype.itemsize if part.dtype is not None else 1
    )
    return size // min(shape) if len(shape) > 2 and min(shape) else size


def replay_bytes(options: Mapping[str, object], obs: Space) -> int:
    """Return the bytes that a full replay buffer adds to a checkpoint, at least; 0 without a replay buffer.

    Args:
        options: all options of a run, by dotted name.
        obs: the space of one environment's observations.
    """
    if "learning_starts" not in options:
        return 0
    steps = min(number(options.get("buffer_size")), number(options.get("total_timesteps")))
    return steps * step_bytes(obs)


def number(value: object) -> int:
    """Return a size from an option; 1 if it is not set."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 1


def checkpoints_to_keep(
    options: Mapping[str, object],
    obs: Space,
) -> tuple[int, str]:
    """Return how many periodic checkpoints a run keeps, and a sentence about their size if it is large.

    Args:
        options: all options of a run, by dotted name.
        obs: the space of one environment's observations.
    """
    size = replay_bytes(options, obs)
    requested = options.get("keep_checkpoints")
    default = 1 if size >= LARGE_REPLAY else USUAL_CHECKPOINTS
    count = requested if isinstance(requested, int) else default
    if size < LARGE_REPLAY:
        return count, ""
    checkpoints = "all checkpoints" if count == 0 else f"up to {count + 1} checkpoints"
    total = "" if count == 0 else f", {size_text(size * (count + 1))} together"
    return count, (
        f"a checkpoint holds the replay buffer, up to {size_text(size)}; {checkpoints} are kept{total}: "
        "--keep-checkpoints, --checkpoint-every and --buffer-size change this"
    )
