"""What the value-based algorithms share: a network and its target, exploration, replay, and the update."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from rlplug_algos.value_config import ValueConfig
from rlplug_core.algorithm import Algorithm, move_target, target_network
from rlplug_core.batches import Transitions
from rlplug_core.buffers.prioritised import PrioritisedReplay, Priority
from rlplug_core.buffers.replay import Pace, ReplayBuffer
from rlplug_core.buffers.sampled import SampledReplay
from rlplug_core.clock import Clock, due
from rlplug_core.exploration import EpsilonGreedy, NoisyGreedy, Softmax
from rlplug_core.nets.heads import masked
from rlplug_core.nets.modules import QNetwork
from rlplug_core.schedules import linear
from rlplug_core.types import Result

#: What noise is drawn for: the online network, its target, and the choice of the next action by the online network.
ONLINE, TARGET, CHOICE = range(3)


class ValueLearner(Algorithm[Transitions]):
    """Learning of action values or their distributions from replay; a subclass states its network and its loss."""

    runners: ClassVar[tuple[str, ...]] = ("sync",)
    actions: ClassVar[tuple[str, ...]] = ("Discrete",)
    config: ValueConfig
    online: QNetwork
    target: QNetwork

    def network(self) -> QNetwork:
        """A new network."""
        raise NotImplementedError

    def losses(self, batch: Transitions) -> tuple[Tensor, Tensor, Tensor]:
        """The loss, the error that makes its priority, and the value of each transition [B]."""
        raise NotImplementedError

    def build(self) -> None:
        c = self.config
        self.epsilon = c.epsilon()
        self.online = self.network().to(self.device)
        self.target = target_network(self.online)
        lr, rule = self.step_size("lr", c.anneal), c.optimiser.rule(c.rule)
        self.optim = self.optimiser([self.online], lr, c.gradient_clip, rule)

    def agent(self, rank: int = 0, ranks: int = 1) -> EpsilonGreedy:
        c, seeds = self.config, self.agent_seeds(rank)
        if c.noisy is not None:
            return NoisyGreedy(self.online, self.online.draw, seeds, self.acting, c.warmup, c.epsilon_evaluation)
        if c.temperature is not None:
            return Softmax(self.online, c.temperature, seeds, self.acting, c.warmup, c.epsilon_evaluation)
        return EpsilonGreedy(self.online, self.epsilon, seeds, self.acting, c.warmup, c.epsilon_evaluation)

    def buffer(self) -> ReplayBuffer:
        c, seeds = self.config, self.seeds.child("buffer")
        pace = Pace(c.batch, c.every, c.updates, c.start)
        kind = SampledReplay if c.priority.samples() else PrioritisedReplay
        if c.priority.alpha == 0:
            return ReplayBuffer(c.capacity, pace, c.n_step, c.gamma, seeds, self.device, c.store)
        priority = Priority(c.priority.alpha, linear(c.priority.beta, 1.0), c.priority.epsilon)
        return kind(c.capacity, pace, c.n_step, c.gamma, seeds, self.device, priority, c.store)

    def update(self, batch: Transitions, clock: Clock) -> Result:
        batch.extras = batch.extras | self.draws(batch)
        loss, metrics, error = self.loss(batch)
        metrics["loss/gradient_norm"] = self.optim.minimise(loss, clock)
        if due(clock.updates, clock.updates + 1, self.config.target_every):
            move_target(self.target, self.online, self.config.tau)
        return Result(metrics, error)

    def draws(self, batch: Transitions) -> dict[str, Tensor]:
        """Random numbers for one loss: with noisy layers, `noise` for each use of a network."""
        if self.config.noisy is None:
            return {}
        noise = [self.online.draw(self.generator) for _ in (ONLINE, TARGET, CHOICE)[: 2 + self.config.double]]
        return {"noise": torch.from_numpy(np.stack(noise)).to(self.device)}

    def loss(self, batch: Transitions) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        losses, error, value = self.losses(batch)
        loss = batch.mean(losses)
        return loss, {"loss/value": loss.detach(), "loss/q_mean": batch.mean(value.detach())}, error.detach()

    def taken(self, batch: Transitions) -> Tensor:
        """What the online network gives [B, atoms] for the actions taken."""
        return chosen(self.online.distribution(batch.obs, noise(batch, ONLINE)), batch.action)

    @torch.no_grad()
    def following(self, batch: Transitions) -> Tensor:
        """What the target network gives [B, atoms] for the best next actions."""
        ahead = self.target.distribution(batch.next_obs, noise(batch, TARGET))
        return chosen(ahead, self.best(batch, ahead))

    def best(self, batch: Transitions, ahead: Tensor) -> Tensor:
        """The best next actions [B] by what the target network gives for all, or with `double` by the online one."""
        values = masked(self.target.expected(ahead), batch.next_obs)
        if self.config.double:
            values = self.online(batch.next_obs, noise(batch, CHOICE))
        return values.argmax(1)


def noise(batch: Transitions, use: int) -> Tensor | None:
    """What `draws` put into the batch for this use of a network; None where layers are plain."""
    drawn = batch.extras.get("noise")
    return None if drawn is None else drawn[use]


def chosen(distribution: Tensor, action: Tensor) -> Tensor:
    """Of [B, A, atoms] those of one action per row: [B, atoms]."""
    index = action.view(-1, 1, 1).expand(-1, 1, distribution.shape[2])
    return distribution.gather(1, index).squeeze(1)
