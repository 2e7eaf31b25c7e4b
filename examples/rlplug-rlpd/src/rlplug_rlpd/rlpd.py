"""RLPD: online learning with offline data (Ball, Smith, Kostrikov and Levine, 2023, arXiv:2302.02948)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

import rlplug_core as rl
from rlplug_algos.off_policy.sac import SAC, SACConfig


@dataclass(frozen=True)
class RLPDConfig(SACConfig):
    """Options of RLPD."""

    learning_starts: rl.Count = 2_000  # env steps before the first gradient step
    random_steps: rl.Natural = 2_000  # env steps at the start with uniformly random actions
    gradient_steps: rl.Count = 4  # gradient steps of the critics per update
    policy_delay: rl.Count = 4  # gradient steps of the critics per step of the policy
    # target entropy in nats; default: minus half the number of action dimensions
    target_entropy: rl.Scheduled[float] | None = None
    n_critics: rl.Count = 5  # number of critics
    n_targets: rl.Count = 2  # number of critics, drawn for each update; the lowest value counts
    # LayerNorm bounds the values of actions that the data set does not have
    critic_net: rl.CriticNet = rl.CriticNet(layer_norm=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_targets > self.n_critics:
            raise ValueError(
                f"n_targets is {self.n_targets}, and there are {self.n_critics} critics; reduce it"
            )
        if self.n_atoms is not None:
            raise ValueError("n_atoms needs sac; these critics give values, leave it at none")


class RLPD(SAC):
    """Soft actor-critic with an ensemble of normalized critics; half of each batch comes from a data set.

    The preset sets `--dataset-share 0.5`: the runner mixes the batches, so this class does not handle the data set.
    """

    Config = RLPDConfig
    moves_targets_each_step: ClassVar[bool] = True
    config: RLPDConfig

    def learn(self, batch: rl.Transitions, now: SACConfig, clock: rl.Clock) -> rl.Result:
        assert isinstance(now, RLPDConfig)
        members = self.generator.permutation(now.n_critics)[: now.n_targets]
        extras = {**batch.extras, "members": torch.from_numpy(members).to(self.device)}
        return super().learn(replace(batch, extras=extras, share=batch.counts), now, clock)

    def next_value(self, batch: rl.Transitions, obs: rl.Obs, action: Tensor) -> Tensor:
        """Return the lowest value [B] of the drawn target critics."""
        values: Tensor = self.target_critics(obs, action)
        return values[batch.extras["members"]].amin(0)

    def policy_value(self, batch: rl.Transitions, obs: rl.Obs, action: Tensor) -> Tensor:
        """Return the mean value [B] of all critics."""
        values: Tensor = self.critics(obs, action)
        return values.mean(0)

    def target_entropy(self, now: SACConfig) -> float:
        """Return the option, or by default minus half the number of the action's dimensions, in nats."""
        return -0.5 * self.head.dims if now.target_entropy is None else now.target_entropy
