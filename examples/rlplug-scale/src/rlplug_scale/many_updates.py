"""REDQ (arXiv:2101.05982), DroQ (arXiv:2110.02034), and SAC with the networks of SimBa (arXiv:2410.09754)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

import rlplug_core as rl
from rlplug_algos.off_policy.sac import SAC, SACConfig
from rlplug_scale.dropout import values_with_dropout


@dataclass(frozen=True)
class REDQConfig(SACConfig):
    """Options of REDQ."""

    learning_starts: rl.Count = 5_000  # env steps before the first gradient step
    random_steps: rl.Natural = 5_000  # env steps at the start with uniformly random actions
    gradient_steps: rl.Count = 20  # gradient steps of the critics per update
    policy_delay: rl.Count = 20  # gradient steps of the critics per step of the policy
    n_critics: rl.Count = 10  # number of critics
    n_targets: rl.Count = 2  # number of critics, drawn for each update; the lowest value counts
    dropout: rl.Fraction = 0.0  # probability that an update leaves out a hidden unit of a critic

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_targets > self.n_critics:
            raise ValueError(
                f"n_targets is {self.n_targets}, and there are {self.n_critics} critics; reduce it"
            )
        if self.dropout == 1:
            raise ValueError("dropout is 1, which leaves out all hidden units; reduce it")
        if self.n_atoms is not None:
            raise ValueError("n_atoms needs sac; these critics give values, leave it at none")


@dataclass(frozen=True)
class DroQConfig(REDQConfig):
    """Options of DroQ."""

    n_critics: rl.Count = 2  # number of critics
    dropout: rl.Fraction = 0.01  # probability that an update leaves out a hidden unit of a critic
    critic_net: rl.CriticNet = rl.CriticNet(layer_norm=True)


@dataclass(frozen=True)
class SimbaSACConfig(REDQConfig):
    """Options of SAC with the networks of SimBa: residual blocks and normalized observations."""

    gradient_steps: rl.Count = 2  # gradient steps of the critics per update
    policy_delay: rl.Count = 1  # gradient steps of the critics per step of the policy
    n_critics: rl.Count = 2  # number of critics
    net: rl.Net = rl.Net(hidden=(), activation="relu", factory="simba", normalize_obs=True)
    critic_net: rl.CriticNet = rl.CriticNet(factory="simba:width=512,blocks=2")
    # learning rate of the policy and the entropy coefficient
    learning_rate: rl.Scheduled[rl.Positive] = 1e-4
    critic_learning_rate: rl.Scheduled[rl.Positive] = 1e-4  # learning rate of the critics
    optimizer: rl.OptimizerName = "adamw"  # optimizer of policy and critics


class ManyUpdates(SAC):
    """Soft actor-critic with many gradient steps per env step, from a few critics of an ensemble."""

    moves_targets_each_step: ClassVar[bool] = True
    config: REDQConfig

    def learn(self, batch: rl.Transitions, now: SACConfig, clock: rl.Clock) -> rl.Result:
        assert isinstance(now, REDQConfig)
        policy_is_due = rl.due(clock.updates, clock.updates + 1, now.policy_delay)
        masks = self.masks(len(batch.action), now, uses=3 if policy_is_due else 2)
        extras = {**batch.extras, "members": self.members(now), **masks}
        return super().learn(replace(batch, extras=extras, share=batch.counts), now, clock)

    def members(self, now: REDQConfig) -> Tensor:
        """Draw the numbers [n_targets] of different critics, uniformly."""
        drawn = self.generator.permutation(now.n_critics)[: now.n_targets]
        return torch.from_numpy(drawn).to(self.device)

    def masks(self, rows: int, now: REDQConfig, uses: int) -> dict[str, Tensor]:
        """Draw masks [uses, n, B, H]: one for each use of the critics, 0 or 1 / (1 - dropout); none without dropout."""
        if now.dropout == 0:
            return {}
        first: Any = self.critics[0]
        units = sum(linear.out_features for linear in first.layers.linears)
        shape = (uses, now.n_critics, rows, units)
        kept = self.generator.random(shape, dtype=np.float32) >= now.dropout
        return {"masks": torch.from_numpy(kept).to(self.device) / (1 - now.dropout)}

    def next_value(self, batch: rl.Transitions, obs: rl.Obs, action: Tensor) -> Tensor:
        """Return the lowest value [B] of the drawn target critics."""
        values = values_with_dropout(self.target_critics, batch, obs, action, use=0)
        return values[batch.extras["members"]].amin(0)

    def values(self, batch: rl.Transitions, obs: rl.Obs, action: Tensor) -> Tensor:
        """Return the values [n, B] of all critics."""
        return values_with_dropout(self.critics, batch, obs, action, use=1)

    def policy_value(self, batch: rl.Transitions, obs: rl.Obs, action: Tensor) -> Tensor:
        """Return the mean value [B] of all critics."""
        return values_with_dropout(self.critics, batch, obs, action, use=2).mean(0)


class REDQ(ManyUpdates):
    """Randomized ensembled double Q-learning: the lowest of a few random critics of ten is the target."""

    Config = REDQConfig


class DroQ(ManyUpdates):
    """Two critics with dropout and LayerNorm replace the ensemble."""

    Config = DroQConfig


class SimbaSAC(ManyUpdates):
    """Two critics and a policy of residual blocks with LayerNorm, for normalized observations."""

    Config = SimbaSACConfig
