"""Running moments as modules of a learner: of observations, to normalize inputs, and of returns, to scale rewards.

A forward pass only reads them, so acting, losses and evaluations do not change them. `Algorithm` updates them in place
at the end of an update, so that a rollout and the losses on it have the same scale.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.accelerator import overridable
from rlplug_core.arrays import to_host
from rlplug_core.batches import Rollout, Samples, Transitions, Views, to_tensors
from rlplug_core.clock import Clock
from rlplug_core.config.schedules import Schedule, throughout
from rlplug_core.errors import NonFinite
from rlplug_core.nets.keys import select
from rlplug_core.types import Array, Obs, Space, State

#: The smallest divisor, because the sum of weights is 0 before the first value.
TINY = 1e-300


def moments(values: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean [F] and variance [F] of the rows `values` [B, F], and the sum [] of their weights [B], in float64.

    Rows of weight 0 do not count, even if they contain NaN.
    """
    counted = torch.where(weight.unsqueeze(1) > 0, values, 0).double()
    size = weight.sum(dtype=torch.float64)
    share = weight.double() / size.clamp(min=TINY)
    mean = share @ counted
    return mean, share @ (counted - mean).square(), size


def mix(
    mean: Tensor,
    variance: Tensor,
    other_mean: Tensor,
    other_variance: Tensor,
    share: Tensor,
) -> None:
    """Change `mean` and `variance` in place to those of a mixture with another distribution, of probability `share`.

    If `share` is the fraction of all rows, this merges two samples (Chan et al., 1979).
    """
    difference = other_mean - mean
    variance.lerp_(other_variance, share).addcmul_(difference, difference * (share * (1 - share)))
    mean.addcmul_(difference, share)


class RunningNorm(nn.Module):
    """Subtracts the mean from values [B, *shape], divides by the deviation and clips; before any update it only clips.

    `mean`, `variance` and `count` are over all values given to `update`, in float64: in float32 a mean far from 0
    would stop changing once a batch's contribution is lost in rounding. The forward pass reads `shift` and `scale`,
    computed from them in float32.
    """

    mean: Tensor
    variance: Tensor
    count: Tensor
    shift: Tensor
    scale: Tensor

    def __init__(
        self,
        shape: tuple[int, ...],
        clip: float = 10.0,
        epsilon: float = 1e-8,
    ) -> None:
        super().__init__()
        self.clip = clip
        self.epsilon = epsilon
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(shape, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("shift", torch.zeros(shape))
        self.register_buffer("scale", torch.ones(shape))

    @overridable
    def forward(self, values: Tensor) -> Tensor:
        return ((values.float() - self.shift) * self.scale).clamp(-self.clip, self.clip)

    @torch.no_grad()
    def update(self, values: Tensor, weight: Tensor) -> None:
        """Add the rows of `values` [B, *shape] to the moments; a row of weight [B] w counts as w rows.

        Raises:
            NonFinite: a value is not finite. Only the CPU is checked; on other devices the next loss is not finite.
        """
        mean, variance, size = moments(values.reshape(-1, self.mean.numel()), weight)
        if mean.is_cpu and not isfinite((mean.sum() + variance.sum()).item()):
            raise NonFinite("observations that net.normalize_obs got are not finite")
        self.count.add_(size)
        mix(
            self.mean.view(-1),
            self.variance.view(-1),
            mean,
            variance,
            size / self.count.clamp(min=TINY),
        )
        self.shift.copy_(self.mean)
        self.scale.copy_((self.variance + self.epsilon).rsqrt())


class Running(nn.Module):
    """The base class of running statistics; after an update, an `Algorithm` passes them the batch of the update."""

    def update_stats(self, batch: Any, clock: Clock) -> None:
        """Update the running moments in place."""
        absorb = getattr(self, "absorb", None)  # the name of this method in contract 1
        if absorb is None:
            raise NotImplementedError(f"{type(self).__name__} does not define update_stats")
        warnings.warn("Running.absorb is now update_stats", DeprecationWarning, stacklevel=2)
        absorb(batch, clock)


class PartNorms(nn.Module):
    """Scales some parts of a dictionary, each by its own norm; other parts are unchanged."""

    def __init__(self, parts: Mapping[str, RunningNorm | PartNorms]) -> None:
        super().__init__()
        self.names = list(parts)
        # A ModuleDict would refuse names such as "keys" and "arm.angle".
        self.parts = nn.ModuleList(parts.values())

    def forward(self, values: Mapping[str, Obs]) -> dict[str, Obs]:
        scaled = {
            name: norm(values[name]) for name, norm in zip(self.names, self.parts, strict=True)
        }
        return {name: scaled.get(name, part) for name, part in values.items()}

    def update(self, values: Mapping[str, Obs], weight: Tensor) -> None:
        """Update the `RunningNorm` of each part."""
        for name, part in zip(self.names, self.parts, strict=True):
            assert isinstance(part, RunningNorm | PartNorms)
            part.update(values[name], weight)


class ObservationNorm(Running):
    """Scales the observations of a space by a norm for this space.

    With `keys` it scales the input of a network that reads only these keys of a Dict.
    """

    def __init__(
        self,
        space: Space,
        norm: RunningNorm | PartNorms,
        keys: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.space = space
        self.norm = norm
        self.keys = tuple(keys)

    def forward(self, obs: Obs) -> Obs:
        """Return the same tree with scaled Box vectors."""
        return self.norm(obs)

    def update_stats(
        self,
        batch: Rollout | Transitions | Samples,
        clock: Clock,
    ) -> None:
        """Update with `obs`, but not with `next_obs`: of a rollout [T, N], or of a batch [B].

        Rows count by their weight. In a batch of prioritized replay this is the importance weight, which corrects the
        preference for some transitions.
        """
        if isinstance(batch, Rollout):
            views = batch.views or Views(batch)
            device = next(self.buffers()).device
            obs = select(views.obs, self.keys) if self.keys else views.obs
            self.norm.update(to_tensors(obs, device), to_tensors(views.weight, device))
        else:
            self.norm.update(select(batch.obs, self.keys), batch.weight)


class RewardScale(Running):
    """Divides rewards by the deviation of the discounted return, so that all environments have values of similar size.

    The return is summed as R = reward + gamma R, from 0 at the start of an episode. Only its deviation is used, so
    rewards keep their sign. A rollout is scaled by the statistics of earlier rollouts, the first one by its own. The
    state is on the device of the rollouts. The returns that a run reports are those of the environment, not scaled.
    """

    def __init__(self, gamma: Schedule | float, clip: float = 10.0) -> None:
        super().__init__()
        self.gamma = throughout(gamma)
        self.clip = clip
        self.norm = RunningNorm(())
        self.running: Array = np.zeros(0)  # R [N] after the last step
        #: Whether the deviation is known; a `bool`, so that reading it does not wait for the device.
        self.has_scale = False

    def forward(self, rollout: Rollout) -> Rollout:
        """Return the rollout with scaled rewards, clipped to [-clip, clip]."""
        source = self
        if not self.has_scale:
            # Unscaled rewards would teach the critic returns of another size than those of all later rollouts.
            source = RewardScale(self.gamma)
            source.update_stats(rollout, Clock(1))
        factor: Any = source.norm.scale
        factor = factor if isinstance(rollout.reward, Tensor) else factor.numpy()
        reward = (rollout.reward * factor).clip(-self.clip, self.clip)
        # The copy below shares the views, which contain no reward.
        if rollout.views is None:
            rollout.views = Views(rollout)
        return replace(rollout, reward=reward)

    def update_stats(self, batch: Rollout, clock: Clock) -> None:
        gamma = self.gamma(clock.progress)
        rewards = torch.as_tensor(batch.reward)
        returns = torch.zeros_like(rewards, dtype=torch.float64)
        on_device = isinstance(batch.reward, Tensor)
        xp: Any = torch if on_device else np
        stored: Any = returns if on_device else returns.numpy()
        running: Any = stored[0]  # zeros, for the first rollout or another number of rows
        if len(self.running) == len(running):
            running = torch.as_tensor(self.running).to(running) if on_device else self.running
        for t, (reward, first, weight) in enumerate(
            zip(batch.reward, batch.is_first, batch.weight, strict=True)
        ):
            running = xp.where(first, 0, running)
            running = xp.where(weight > 0, reward + gamma * running, running)
            stored[t] = running
        self.running = running
        self.norm.to(returns.device)
        self.norm.update(returns.reshape(-1), torch.as_tensor(batch.weight.reshape(-1)))
        self.has_scale = on_device or self.norm.count.item() > 0

    def get_extra_state(self) -> State:
        return {"running": to_host(self.running), "has_scale": self.has_scale}

    def set_extra_state(self, state: State) -> None:
        self.running = np.array(state["running"])
        self.has_scale = bool(state.get("has_scale", len(self.running)))
