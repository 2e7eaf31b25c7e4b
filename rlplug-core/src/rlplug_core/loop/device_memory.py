"""The least memory of a run with an environment on a device; a run that does not fit is refused early."""

from __future__ import annotations

from typing import TypeAlias

import gymnasium.spaces as spaces
import numpy as np
import torch
from torch import nn

from rlplug_core.arrays import DTYPES
from rlplug_core.buffers.device_replay import DeviceReplay
from rlplug_core.buffers.free_memory import check_free, size_text
from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.loop.memory_check import COPIES
from rlplug_core.loop.plan import Plan
from rlplug_core.plugins.env_base import complete
from rlplug_core.protocols import AnyBuffer, AnyLearner, Env
from rlplug_core.types import Space

#: The bytes of each part of a run, and the option that makes this part smaller.
Needs: TypeAlias = dict[str, tuple[int, str]]
#: Bytes of a stored step besides observations and action: in replay the reward and three masks; in a rollout also the
#: weight and the log-probability.
REPLAY_BYTES = 7
ROLLOUT_BYTES = 15


def device_memory(plan: Plan, learner: AnyLearner, env: Env) -> str:
    """Return a sentence about the memory that a run needs on the device of its environments; "" without a device.

    Args:
        plan: the run.
        learner: its learner, with networks.
        env: one row of its environments.

    Raises:
        UsageError: the device has less free memory; names the largest part and its option.
    """
    device = env.spec.device
    if device is None:
        return ""
    needs = _needs(plan, learner, env)
    total = sum(size for size, _ in needs.values())
    breakdown = ", ".join(f"{name} {size_text(size)}" for name, (size, _) in needs.items() if size)
    largest = max(needs, key=lambda name: needs[name][0])
    check_free(total, device, needs[largest][1], f"the run ({breakdown})")
    return f"memory on {device}: at least {size_text(total)} ({breakdown})"


def _needs(plan: Plan, learner: AnyLearner, env: Env) -> Needs:
    """Return the bytes of each part of a run."""
    rows = plan.options.num_envs
    module = learner if isinstance(learner, nn.Module) else nn.Module()
    weights = sum(parameter.nbytes for parameter in module.parameters())
    step = 2 * space_bytes(env.spec.obs) + space_bytes(env.spec.action)
    return {
        "environments": (rows * complete(env).row_bytes(), "num_envs"),
        "stored steps": _storage(learner.buffer(), rows, step),
        "networks and optimizers": (COPIES * weights, "net.hidden"),
    }


def _storage(buffer: AnyBuffer, rows: int, step: int) -> tuple[int, str]:
    """Return the bytes that a buffer stores on the device, and the option for it; `step` has the bytes of one step."""
    if isinstance(buffer, DeviceReplay):
        return buffer.capacity * (step + REPLAY_BYTES), "buffer_size"
    if isinstance(buffer, RolloutBuffer) and buffer.takes_tensors:
        return buffer.steps * rows * (step + ROLLOUT_BYTES), "num_envs"
    return 0, "num_envs"


def space_bytes(space: Space) -> int:
    """Return the bytes of an element of a canonical space as tensors; float64 is stored as float32."""
    if isinstance(space, spaces.Dict):
        return sum(space_bytes(part) for part in space.spaces.values())
    dtype = np.dtype(space.dtype or np.float32)
    kind = torch.float32 if dtype.kind == "f" else DTYPES.get(dtype, torch.int64)
    return int(np.prod(space.shape or (), dtype=np.int64)) * kind.itemsize
