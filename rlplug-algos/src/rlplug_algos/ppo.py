"""Proximal policy optimisation (Schulman et al., 2017, arXiv:1707.06347)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from rlplug_core.accelerate.forward import forward
from rlplug_core.agents import PolicyAgent
from rlplug_core.algorithm import Algorithm
from rlplug_core.batches import Rollout, Samples, check_standardise, standardise, value_error
from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.clock import Clock
from rlplug_core.config import Config, Count, Fraction, NonNegative, Positive, log, uniform
from rlplug_core.estimators import gae
from rlplug_core.nets.heads import SPACES
from rlplug_core.nets.memory import CellName, RecurrentPolicy, RecurrentPolicyAndCritic
from rlplug_core.nets.modules import PolicyAndCritic
from rlplug_core.nets.net import Net
from rlplug_core.normalise import RewardScale
from rlplug_core.optimiser import host
from rlplug_core.recurrent import MemoryAgent, check_no_units, check_whole_rows, recurrent_values, sequences
from rlplug_core.rules import OptimiserOptions, RuleName
from rlplug_core.types import Result


@dataclass(frozen=True)
class PPOConfig(Config):
    """Options of PPO."""

    steps: Count = 128  # rollout length per environment row
    batch: Count = 256  # samples per minibatch
    epochs: Count = 10  # passes over each rollout; samples that fill no minibatch sit one out
    gamma: Fraction = 0.99  # discount per step
    lam: Fraction = 0.95  # GAE lambda
    clip: Positive = 0.2  # how far the new policy may move, as a probability ratio
    value_clip: Positive | None = None  # how far a value may move from the rollout's, with popart in its units, or none
    kl_stop: Positive | None = None  # stop a rollout's epochs when the last minibatch's mean KL exceeds this
    lr: Positive = 3e-4  # step size of the optimiser
    anneal: bool = True  # let the step size fall to 0 over the run
    rule: RuleName = "adam"  # the optimiser of policy and critic
    optimiser: OptimiserOptions = OptimiserOptions()
    entropy: NonNegative = 0.0  # weight of the entropy bonus
    value: NonNegative = 0.5  # weight of the value loss
    gradient_clip: Positive = 0.5  # largest gradient norm
    standardise: bool = True  # scale advantages to mean 0, deviation 1 in each minibatch
    scale_rewards: bool = False  # divide rewards by the running deviation of the discounted return
    popart: bool = False  # learn values in units of their running deviation (van Hasselt et al., 2016)
    memory: CellName | None = None  # a recurrent cell on the network's last layer, shared by policy and critic
    units: Count | None = None  # units of that cell; none is 64
    net: Net = Net()

    search = {"lr": log(1e-5, 1e-2), "clip": uniform(0.1, 0.3), "entropy": log(1e-5, 0.1), "lam": uniform(0.8, 1.0)}


class PPO(Algorithm[Rollout]):
    """Several epochs of minibatch steps on each rollout, with the policy's change clipped."""

    Config = PPOConfig
    runners: ClassVar[tuple[str, ...]] = ("sync",)
    actions: ClassVar[tuple[str, ...]] = SPACES
    config: PPOConfig

    def build(self) -> None:
        c = self.config
        self.networks: PolicyAndCritic | RecurrentPolicyAndCritic
        check_standardise(c.standardise, min(c.batch, c.steps * self.spec.rows))
        if c.memory is None:
            check_no_units(c.units)
            self.networks = PolicyAndCritic(self.spec, c.net, c.popart)
        else:
            check_whole_rows(c.steps, c.batch)
            self.networks = RecurrentPolicyAndCritic(self.spec, c.net, c.memory, c.units or 64, c.popart)
        self.policy, self.critic = self.networks.policy, self.networks.critic
        self.rewards = RewardScale(c.gamma) if c.scale_rewards else nn.Identity()
        lr, rule = self.step_size("lr", c.anneal), c.optimiser.rule(c.rule)
        self.optim = self.optimiser([self.policy, self.critic], lr, self.schedule("gradient_clip"), rule)
        self.values = forward(self.critic, self.acting)

    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        if isinstance(self.policy, RecurrentPolicy):
            return MemoryAgent(self.policy, self.agent_seeds(rank), self.acting, log_prob=True)
        return PolicyAgent(self.policy, self.agent_seeds(rank), self.acting, log_prob=True)

    def buffer(self) -> RolloutBuffer:
        return RolloutBuffer(self.config.steps)

    def update(self, batch: Rollout, clock: Clock) -> Result:
        c = self.config
        samples = self.samples(self.rewards(batch))
        metrics: dict[str, Tensor] = {}
        for _ in range(c.epochs):
            for minibatch in samples.minibatches(c.batch, self.generator):
                loss, metrics = self.loss(minibatch)
                metrics["loss/gradient_norm"] = self.optim.minimise(loss, clock, age=batch.weight.size)
            if c.kl_stop is not None and host(metrics["loss/kl"]) > c.kl_stop:
                break
        self.critic.absorb(samples)
        return Result(metrics)

    def samples(self, batch: Rollout) -> Samples:
        """The rollout's rows with their advantages and value targets; with a memory they stay whole."""
        c = self.config
        if isinstance(self.networks, RecurrentPolicyAndCritic):
            value, successor = recurrent_values(batch, self.networks, self.device)
            return sequences(batch, *gae(batch, value, successor, c.gamma, c.lam), self.device)
        value, successor = batch.values(self.values)
        return batch.samples(*gae(batch, value, successor, c.gamma, c.lam), self.device)

    def loss(self, batch: Samples) -> tuple[Tensor, dict[str, Tensor]]:
        """The clipped surrogate (eq. 7) with squared value error and entropy bonus (eq. 9)."""
        c = self.config
        outputs, values = self.networks(*batch.inputs)
        log_prob, entropy = self.policy.head.log_prob_and_entropy(outputs, batch.action)
        log_ratio = log_prob - batch.extras["log_prob"]
        ratio = log_ratio.exp()
        advantage = standardise(batch.advantage, batch.weight) if c.standardise else batch.advantage / self.critic.unit
        policy = -(ratio * advantage).minimum(ratio.clamp(1 - c.clip, 1 + c.clip) * advantage)
        value = value_error(values, batch.target, batch.target - batch.advantage, c.value_clip, self.critic.unit)
        loss = batch.mean(policy + c.value / self.critic.unit**2 * value - c.entropy * entropy)
        kl = ratio - 1 - log_ratio
        metrics = {"loss/policy": policy, "loss/value": value, "loss/entropy": entropy, "loss/kl": kl}
        return loss, {name: batch.mean(term.detach()) for name, term in metrics.items()}
