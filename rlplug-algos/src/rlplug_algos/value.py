"""What the algorithms with action values and replay share: a network and its target, replay, and the update."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from rlplug_algos.action_values import CHOICE, ONLINE, TARGET, ActionValueLearner, noise_of
from rlplug_algos.value_config import ValueConfig
from rlplug_core.algorithm import discounted, move_target, replay_gamma, target_network
from rlplug_core.batches import Transitions
from rlplug_core.buffers.prioritised import PrioritisedReplay, Priority
from rlplug_core.buffers.replay import Pace, ReplayBuffer
from rlplug_core.buffers.sampled import SampledReplay
from rlplug_core.clock import Clock, due
from rlplug_core.nets.heads import masked
from rlplug_core.nets.modules import QNetwork
from rlplug_core.schedules import linear
from rlplug_core.types import Result


class ValueLearner(ActionValueLearner[Transitions]):
    """Learning of action values or their distributions from replay; a subclass states its network and its loss."""

    runners: ClassVar[tuple[str, ...]] = ("sync",)
    config: ValueConfig
    target: QNetwork

    def losses(self, batch: Transitions) -> tuple[Tensor, Tensor, Tensor]:
        """The loss, the error that makes its priority, and the value of each transition [B]."""
        raise NotImplementedError

    def build(self) -> None:
        super().build()
        c = self.config
        self.target = target_network(self.online)
        lr, rule = self.step_size("lr", c.anneal), c.optimiser.rule(c.rule)
        self.optim = self.optimiser([self.online], lr, self.schedule("gradient_clip"), rule)

    def buffer(self) -> ReplayBuffer:
        c, seeds = self.config, self.seeds.child("buffer")
        pace, gamma = Pace(c.batch, c.every, c.updates, c.start), replay_gamma(self, c.n_step)
        kind = SampledReplay if c.priority.samples() else PrioritisedReplay
        if c.priority.alpha == 0:
            return ReplayBuffer(c.capacity, pace, c.n_step, gamma, seeds, self.device, c.store)
        beta = self.context.schedules.get("priority.beta") or linear(c.priority.beta, 1.0)
        priority = Priority(c.priority.alpha, beta, c.priority.epsilon)
        return kind(c.capacity, pace, c.n_step, gamma, seeds, self.device, priority, c.store)

    def update(self, batch: Transitions, clock: Clock) -> Result:
        discounted(self, batch)
        batch.extras = batch.extras | self.draws(batch)
        loss, metrics, error = self.loss(batch)
        metrics["loss/gradient_norm"] = self.optim.minimise(loss, clock)
        if due(clock.updates, clock.updates + 1, self.config.target_every):
            move_target(self.target, self.online, self.config.tau)
        return Result(metrics, error)

    def draws(self, batch: Transitions) -> dict[str, Tensor]:
        """Random numbers for one loss: with noisy layers, `noise` for each use of a network."""
        return self.carried(self.drawn(2 + self.config.double))

    def loss(self, batch: Transitions) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        losses, error, value = self.losses(batch)
        loss = batch.mean(losses)
        return loss, {"loss/value": loss.detach(), "loss/q_mean": batch.mean(value.detach())}, error.detach()

    def taken(self, batch: Transitions) -> Tensor:
        """What the online network gives [B, atoms] for the actions taken."""
        return chosen(self.online.distribution(batch.obs, noise_of(batch, ONLINE)), batch.action)

    @torch.no_grad()
    def following(self, batch: Transitions) -> Tensor:
        """What the target network gives [B, atoms] for the best next actions."""
        ahead = self.target.distribution(batch.next_obs, noise_of(batch, TARGET))
        return chosen(ahead, self.best(batch, ahead))

    def best(self, batch: Transitions, ahead: Tensor) -> Tensor:
        """The best next actions [B] by what the target network gives for all, or with `double` by the online one."""
        values = masked(self.target.expected(ahead), batch.next_obs)
        if self.config.double:
            values = self.online(batch.next_obs, noise_of(batch, CHOICE))
        return values.argmax(1)


def chosen(distribution: Tensor, action: Tensor) -> Tensor:
    """Of [B, A, atoms] those of one action per row: [B, atoms]."""
    index = action.view(-1, 1, 1).expand(-1, 1, distribution.shape[2])
    return distribution.gather(1, index).squeeze(1)
