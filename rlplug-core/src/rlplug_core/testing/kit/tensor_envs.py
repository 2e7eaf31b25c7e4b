"""Checks of environments on a device: places of tensors, no shared memory, no waiting, random numbers of each row."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rlplug_core.arrays import to_device, to_host
from rlplug_core.nets.actions import sample
from rlplug_core.protocols import Env
from rlplug_core.testing.host_reads import HostReads
from rlplug_core.testing.kit.env_subject import ROWS, SEED, TENSORS, TURNS, EnvSubject
from rlplug_core.testing.kit.outcome import Failed, Skipped
from rlplug_core.testing.kit.trees import Leaves, difference, leaves
from rlplug_core.types import Array, Obs, Timestep, tree_map


def device(subject: EnvSubject) -> None:
    """An environment on a device returns new tensors [N, ...] on that device at each step."""
    env, env_device = _on_device(subject)
    timesteps = [env.reset(SEED)]
    copies = [_leaves(timesteps[0])]
    for turn in range(TURNS):
        now = env.step(_action(env, turn))
        _check_place(now, env_device, turn + 1)
        timesteps.append(now)
        copies.append(_leaves(now))
    for turn, (now, before) in enumerate(zip(timesteps, copies, strict=True)):
        if path := difference(before, _leaves(now)):
            raise Failed(
                f"a later step changes '{path}' of step {turn}: the environment returned a tensor that it computes in; "
                "return new tensors, such as state + change in place of state.add_(change)"
            )


def device_waits(subject: EnvSubject) -> None:
    """On a device, steps never wait for the device."""
    env, _ = _on_device(subject)
    env.reset(SEED)
    actions = [_action(env, turn) for turn in range(3)]
    with HostReads() as reads:
        steps = [env.step(action) for action in actions]
    if all(now.final_obs is now.obs for now in steps):
        raise Skipped(
            "its rows are reset in the step after the end of an episode, which rlplug has to wait for"
        )
    if reads.counts:
        calls = ", ".join(f"{name} ({count} times)" for name, count in sorted(reads.counts.items()))
        raise Failed(
            f"three steps wait for the device: {calls}; choose with torch.where, and leave out .item(), 'if' on a "
            "tensor and indices with masks"
        )


def _on_device(subject: EnvSubject) -> tuple[Env, torch.device]:
    """Return a new environment and its device.

    Raises:
        Skipped: it has none.
    """
    env = subject.bare()
    if env.spec.device is None:
        raise Skipped("it gives arrays, not tensors on a device")
    return env, env.spec.device


def device_rows(subject: EnvSubject) -> None:
    """On a device, each row draws its own random numbers."""
    env, _ = _on_device(subject)
    starts = [_rows_of(env.reset(seed).obs) for seed in (SEED, SEED + 1)]
    if np.array_equal(starts[0], starts[1]):
        raise Skipped("its first observations are not random")
    if any((start == start[0]).all() for start in starts):
        raise Failed(
            f"all {ROWS} rows start with the same observation, and another seed with another one: each row needs "
            "separate random numbers; draw [num_envs, ...] of them"
        )


def device_resets(subject: EnvSubject) -> None:
    """On a device, a row continues with the first observation of a new episode after one has ended."""
    env, _ = _on_device(subject)
    env.reset(SEED)
    ends = same = 0
    for turn in range(TURNS):
        now = env.step(_action(env, turn))
        if now.final_obs is now.obs:  # the row is reset in the next step
            raise Skipped("its rows are reset in the step after the end of an episode")
        ended = to_host(now.terminated | now.truncated)
        pair = (_rows_of(obs)[ended] for obs in (now.obs, now.final_obs))
        ends += int(ended.sum())
        same += int(np.equal(*pair).all(1).sum())
    if not ends:
        raise Skipped(f"no episode ends within {TURNS} random steps")
    if same == ends:
        raise Failed(
            f"after each of {ends} ends the row continues with the last observation of its episode; start a new "
            "episode in the same step, or declare another metadata['autoreset_mode']"
        )


def _rows_of(obs: Obs) -> Array:
    """Return observations as one vector per row [N, K]."""
    arrays = [to_host(leaf) for leaf in leaves(obs).values()]
    return np.concatenate([array.reshape(len(array), -1) for array in arrays], 1)


def _action(env: Env, turn: int) -> Array:
    """Return random actions as a tensor on the device of an environment."""
    assert env.spec.device is not None
    if turn == 0:
        env.spec.action.seed(SEED)
    return to_device(sample(env.spec.action, env.spec.num_envs), env.spec.device)


def _leaves(now: Timestep) -> Leaves:
    return leaves({name: getattr(now, name) for name in TENSORS})


def _check_place(now: Timestep, env_device: torch.device, turn: int) -> None:
    """Raise Failed if a part of a timestep is not a tensor with ROWS rows on the device."""

    def check(part: object, name: str) -> None:
        if not isinstance(part, Tensor) or part.device.type != env_device.type:
            kind = f"a tensor on {part.device}" if isinstance(part, Tensor) else type(part).__name__
            raise Failed(f"step {turn}: {name} is {kind}; return a tensor on {env_device}")
        if part.shape[:1] != (ROWS,):
            raise Failed(
                f"step {turn}: {name} has the shape {[*part.shape]}, and there are {ROWS} rows"
            )

    for name in TENSORS:
        tree_map(lambda part, name=name: check(part, name), getattr(now, name))
