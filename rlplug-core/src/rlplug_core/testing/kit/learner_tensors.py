"""The check of algorithms on environments that give tensors on a device, and an environment for it."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace

import numpy as np
import torch
from torch import Tensor

from rlplug_core.arrays import to_host
from rlplug_core.errors import UsageError
from rlplug_core.plugins.env_base import complete
from rlplug_core.protocols import Env
from rlplug_core.testing.host_reads import HostReads
from rlplug_core.testing.kit.env_subject import TENSORS, Converter
from rlplug_core.testing.kit.outcome import Failed, Skipped
from rlplug_core.testing.kit.short_run import Trial
from rlplug_core.testing.kit.subject import BUDGET, Subject
from rlplug_core.types import Array, Obs, Timestep, tree_map

#: Vector steps with counted reads.
STEPS = 4


def tensors(subject: Subject) -> None:
    """It learns from tensors on a device without silent copies to the host, or refuses them with a UsageError."""
    try:
        trial = Trial(subject, convert=AsTensors)
    except UsageError as refusal:
        raise Skipped(f"it refuses tensors: {refusal}") from refusal
    if not trial.run_updates(1, BUDGET):
        raise Failed(f"it learns nothing from tensors within {BUDGET:,} env steps")
    for _ in range(STEPS):
        _check_step(trial)
    with HostReads() as reads:
        trial.run_updates(len(trial.updates.metrics) + 2, 2 * BUDGET)
    if count := reads.counts["__array__"]:
        raise Failed(
            f"two updates turn tensors into arrays without a copy from the device ({count} times), which fails on a "
            "GPU; compute with torch if the batch holds tensors, and convert with rl.like_inputs"
        )


def _check_step(trial: Trial) -> None:
    """Raise Failed if acting waits for the device, or storing in a buffer that says that it takes tensors."""
    actor = trial.actor
    with HostReads() as reads:
        actor.acting.act(actor.obs, actor.is_first, actor.recurrent_state, trial.clock)
    _check_reads("its agent", reads.counts)
    step = actor.step()
    with HostReads() as reads:
        trial.buffer.add(step)
    if getattr(trial.buffer, "takes_tensors", False):
        _check_reads("its buffer, which has 'takes_tensors',", reads.counts)
    trial.run(trial.turns)


def _check_reads(part: str, counts: Counter[str]) -> None:
    if counts:
        calls = ", ".join(f"{name} ({count} times)" for name, count in sorted(counts.items()))
        raise Failed(
            f"{part} waits for the device in each step: {calls}; compute with torch on the device, or set "
            "'use_tensors' of the agent to None to refuse tensors, or 'takes_tensors' of the buffer to False"
        )


class AsTensors(Converter):
    """An environment of arrays that gives tensors on the CPU instead, and takes them."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.spec = replace(env.spec, device=torch.device("cpu"))

    def reset(self, seed: int) -> Timestep:
        return _tensors(self.env.reset(seed))

    def step(self, action: Array) -> Timestep:
        """Step every row.

        Raises:
            Failed: the actions are not a tensor.
        """
        if not isinstance(action, Tensor):
            raise Failed(
                f"observations are tensors, and its agent returns actions of type {type(action).__name__}; return a "
                "tensor, or set its 'use_tensors' to None to refuse them"
            )
        return _tensors(self.env.step(to_host(action)))

    def info_tensor(self, key: str) -> Tensor | None:
        values = complete(self.env).info(key)
        return None if None in values else torch.tensor(np.array(values, np.float32))


def _tensors(now: Timestep) -> Timestep:
    """Return a timestep with new tensors in place of its arrays."""
    values: dict[str, Obs] = {field.name: getattr(now, field.name) for field in fields(now)}
    converted = {name: tree_map(torch.tensor, values[name]) for name in TENSORS}
    if now.final_obs is now.obs:
        converted["final_obs"] = converted["obs"]
    # Environments on a device set `ended` in every step, because only the device knows it.
    return Timestep(**{**values, **converted, "ended": True})
