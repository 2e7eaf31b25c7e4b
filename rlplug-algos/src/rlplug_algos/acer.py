"""Actor-critic with experience replay (Wang et al., 2017, arXiv:1611.01224): off-policy rollouts, trusted in part."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.accelerate.forward import forward
from rlplug_core.agents import PolicyAgent
from rlplug_core.algorithm import Algorithm, target_network
from rlplug_core.batches import Rollout, Samples
from rlplug_core.buffers.trajectories import TrajectoryReplay
from rlplug_core.clock import Clock
from rlplug_core.config import Config, Count, Fraction, Natural, NonNegative, Positive, log, uniform
from rlplug_core.corrections import retrace
from rlplug_core.natural import within
from rlplug_core.nets.modules import Policy, QNetwork
from rlplug_core.nets.net import Net
from rlplug_core.rules import OptimiserOptions, RuleName
from rlplug_core.types import Act, Array, Carry, Obs, Result, tree_map

TINY = 1e-8


@dataclass(frozen=True)
class ACERConfig(Config):
    """Options of ACER."""

    steps: Count = 20  # rollout length per environment row
    capacity: Count = 50_000  # env steps kept for replay, in whole rollouts
    start: Natural = 1_000  # env steps before the first rollout is replayed
    replays: NonNegative = 4.0  # replayed rollouts per new one, on average
    gamma: Fraction = 0.99  # discount per step
    lr: Positive = 7e-4  # step size of the optimiser
    anneal: bool = False  # let the step size fall to 0 over the run
    rule: RuleName = "rmsprop"  # the optimiser of policy and values; rmsprop as in the paper
    optimiser: OptimiserOptions = OptimiserOptions()
    clip: Positive = 10.0  # largest gradient norm
    truncate: Positive = 10.0  # where importance weights are cut; what is cut off is corrected by expectation
    region: Positive = 1.0  # how far from the average policy an update may push, as the slope of the KL divergence
    average: Fraction = 0.99  # share of the average policy that stays in each update
    entropy: NonNegative = 0.01  # weight of the entropy bonus
    value: NonNegative = 0.5  # weight of the value loss
    net: Net = Net()

    search = {"lr": log(1e-5, 1e-2), "entropy": log(1e-5, 0.1), "region": uniform(0.1, 2.0)}


class BehaviourAgent(PolicyAgent):
    """Sends along the outputs [N, size] of the head from which it chose."""

    def act(self, obs: Obs, first: Array, carry: Carry, clock: Clock, explore: bool = True) -> Act:
        outputs = self.forward(obs)
        if not explore or self.draws is None:
            return Act(self.head.mode(outputs))
        return Act(self.head.sample(outputs, self.draws.next()), None, {"outputs": outputs})


class ACER(Algorithm[Rollout]):
    """Truncated importance weights with bias correction, Retrace targets, a trust region around an average policy."""

    Config = ACERConfig
    runners: ClassVar[tuple[str, ...]] = ("sync",)
    actions: ClassVar[tuple[str, ...]] = ("Discrete",)
    config: ACERConfig

    def build(self) -> None:
        c = self.config
        self.policy = Policy(self.spec, c.net).to(self.device)
        self.average = target_network(self.policy)
        lr, rule = self.step_size("lr", c.anneal), c.optimiser.rule(c.rule)
        self.optim = self.optimiser([self.policy, *self.critics()], lr, self.schedule("clip"), rule)
        self.host_policy = forward(self.policy, self.acting)

    def critics(self) -> list[nn.Module]:
        """Make the networks of values, on their device."""
        self.values = QNetwork(self.spec, replace(self.config.net, output_gain=None)).to(self.device)
        self.host_values = forward(self.values, self.acting)
        return [self.values]

    def agent(self, rank: int = 0, ranks: int = 1) -> BehaviourAgent:
        return BehaviourAgent(self.policy, self.agent_seeds(rank), self.acting)

    def buffer(self) -> TrajectoryReplay:
        c, rollout = self.config, self.config.steps * self.spec.rows
        start, capacity = -(-c.start // rollout), max(1, c.capacity // rollout)
        return TrajectoryReplay(c.steps, capacity, self.schedule("replays"), start, self.seeds.child("buffer"))

    def update(self, batch: Rollout, clock: Clock) -> Result:
        loss, metrics = self.loss(self.samples(batch))
        metrics["loss/gradient_norm"] = self.optim.minimise(loss, clock, age=batch.weight.size)
        with torch.no_grad():
            for old, new in zip(self.average.parameters(), self.policy.parameters(), strict=True):
                old.lerp_(new, 1 - self.config.average)
        return Result(metrics)

    def samples(self, batch: Rollout) -> Samples:
        """The rollout's rows with the Retrace targets of their action values, and the advantages over V."""
        value, successor = batch.values(lambda obs: (self.probabilities(obs) * self.host_values(obs)).sum(-1))
        obs = tree_map(lambda array: array[:-1].reshape(batch.reward.size, *array.shape[2:]), batch.obs)
        action = batch.action.reshape(-1, 1)
        then = np.take_along_axis(softmax(batch.extras["outputs"].reshape(len(action), -1)), action, 1)
        now = np.take_along_axis(self.probabilities(obs), action, 1)
        chosen = np.take_along_axis(self.host_values(obs), action, 1).reshape(value.shape)
        ratio = (now / np.maximum(then, TINY)).reshape(value.shape)
        target = retrace(batch, value, successor, chosen, ratio, self.config.gamma)
        return batch.samples(target - value, target, self.device)

    def probabilities(self, obs: Obs) -> Array:
        """The present policy's [B, A], on the host."""
        return softmax(self.host_policy(obs))

    def loss(self, batch: Samples) -> tuple[Tensor, dict[str, Tensor]]:
        """Section 3: policy gradient within the trust region (eq. 9 to 12), squared Retrace error, entropy bonus."""
        c = self.config
        log_probs = self.policy(batch.obs).log_softmax(-1)
        probs, values = log_probs.exp(), self.values(batch.obs)
        ascent = self.ascent(batch, probs.detach(), values.detach())
        policy, entropy = -(ascent * probs).sum(-1), -(probs * log_probs).sum(-1)
        value = (values.gather(1, batch.action.unsqueeze(1)).squeeze(1) - batch.target).square()
        loss = batch.mean(policy + c.value * value - c.entropy * entropy)
        metrics = {"loss/policy": policy, "loss/value": value, "loss/entropy": entropy}
        return loss, {name: batch.mean(term.detach()) for name, term in metrics.items()}

    def ascent(self, batch: Samples, probs: Tensor, values: Tensor) -> Tensor:
        """Where the probabilities [B, A] shall go: eq. 9, held within the region of eq. 11 by eq. 12."""
        c, safe = self.config, probs.clamp(min=TINY)
        ratio = probs / batch.extras["outputs"].softmax(-1).clamp(min=TINY)
        taken = nn.functional.one_hot(batch.action, probs.shape[1])
        gain = ratio.clamp(max=c.truncate) * taken * batch.advantage.unsqueeze(1) / safe
        excess = (1 - c.truncate / ratio.clamp(min=TINY)).clamp(min=0)
        gain += excess * (values - (probs * values).sum(-1, keepdim=True)) * probs / safe
        with torch.no_grad():
            away = -self.average(batch.obs).softmax(-1) / safe
        return within(gain, away, c.region)


def softmax(logits: Array) -> Array:
    probs = np.exp(logits - logits.max(-1, keepdims=True))
    normal: Array = probs / probs.sum(-1, keepdims=True)
    return normal
