"""What A2C and its kin share: one gradient step per rollout on policy, value and entropy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from rlplug_core.accelerate.forward import forward
from rlplug_core.agents import PolicyAgent
from rlplug_core.algorithm import Algorithm
from rlplug_core.batches import Rollout, Samples, check_standardise, standardise
from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.clock import Clock
from rlplug_core.config import Config, Count, Fraction, NonNegative, Positive, log, uniform
from rlplug_core.errors import UsageError
from rlplug_core.estimators import gae
from rlplug_core.nets.heads import SPACES
from rlplug_core.nets.modules import PolicyAndCritic
from rlplug_core.nets.net import Net
from rlplug_core.normalise import RewardScale
from rlplug_core.optimiser import Optimiser
from rlplug_core.protocols import Buffer
from rlplug_core.schedules import Schedule
from rlplug_core.types import Result


@dataclass(frozen=True)
class ActorCriticConfig(Config):
    """Options of every actor-critic that learns from a rollout once."""

    steps: Count = 5  # rollout length per environment row
    gamma: Fraction = 0.99  # discount per step
    lam: Fraction = 1.0  # GAE lambda; 1 gives n-step returns
    lr: Positive = 7e-4  # step size of the optimiser
    anneal: bool = False  # let the step size fall to 0 over the run
    entropy: NonNegative = 0.01  # weight of the entropy bonus
    value: NonNegative = 0.5  # weight of the value loss
    standardise: bool = False  # scale advantages to mean 0, deviation 1 in each batch
    scale_rewards: bool = False  # divide rewards by the running deviation of the discounted return
    popart: bool = False  # learn values in units of their running deviation (van Hasselt et al., 2016)
    net: Net = Net()

    search = {"lr": log(1e-5, 1e-2), "entropy": log(1e-5, 0.1), "lam": uniform(0.8, 1.0)}


class ActorCritic(Algorithm[Rollout]):
    """Subclasses say which optimiser minimises the loss, and which rollouts they learn from."""

    Config = ActorCriticConfig
    actions: ClassVar[tuple[str, ...]] = SPACES
    config: ActorCriticConfig

    def build(self) -> None:
        c = self.config
        if c.popart and self.context.runner != "sync":
            raise UsageError(
                f"{type(self).__name__} with popart does not run under '{self.context.runner}': it changes weights in "
                "place, beside the optimiser that workers share; use --runner sync or leave popart at false"
            )
        check_standardise(c.standardise, c.steps * self.spec.rows)
        self.networks = PolicyAndCritic(self.spec, c.net, c.popart)
        self.policy, self.critic = self.networks.policy, self.networks.critic
        self.rewards = RewardScale(c.gamma) if c.scale_rewards else nn.Identity()
        self.optim = self.minimiser(self.step_size("lr", c.anneal))
        self.values = forward(self.critic, self.acting)

    def minimiser(self, lr: Schedule) -> Optimiser:
        """The optimiser of policy and critic, with the step size `lr`."""
        raise NotImplementedError

    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        return PolicyAgent(self.policy, self.agent_seeds(rank), self.acting)

    def buffer(self) -> Buffer[Rollout]:
        return RolloutBuffer(self.config.steps)

    def update(self, batch: Rollout, clock: Clock) -> Result:
        samples = self.samples(batch)
        loss, metrics = self.loss(samples)
        metrics["loss/gradient_norm"] = self.optim.minimise(loss, clock, age=batch.weight.size)
        self.critic.absorb(samples)
        return Result(metrics)

    def samples(self, batch: Rollout) -> Samples:
        """The rollout's rows with their advantages and value targets."""
        batch = self.rewards(batch)
        value, successor = batch.values(self.values)
        return batch.samples(*gae(batch, value, successor, self.config.gamma, self.config.lam), self.device)

    def loss(self, batch: Samples) -> tuple[Tensor, dict[str, Tensor]]:
        """Mnih et al. (2016), section 4: policy gradient, squared value error, entropy bonus."""
        c = self.config
        outputs, values = self.networks(batch.obs)
        log_prob, entropy = self.policy.head.log_prob_and_entropy(outputs, batch.action)
        advantage = standardise(batch.advantage, batch.weight) if c.standardise else batch.advantage / self.critic.unit
        policy = -log_prob * advantage
        value = (values - batch.target).square()
        loss = batch.mean(policy + c.value / self.critic.unit**2 * value - c.entropy * entropy)
        metrics = {"loss/policy": policy, "loss/value": value, "loss/entropy": entropy}
        return loss, {name: batch.mean(term.detach()) for name, term in metrics.items()}
