"""An actor-critic to which actions that went worse than expected count less than those that went better."""

from dataclasses import dataclass

from rlplug_core import Algorithm, Config
from rlplug_core.accelerate.forward import forward
from rlplug_core.agents import PolicyAgent
from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.config import Count, NonNegative, Positive
from rlplug_core.estimators import gae
from rlplug_core.nets.modules import Critic, Policy
from rlplug_core.nets.net import Net
from rlplug_core.schedules import linear
from rlplug_core.types import Result


@dataclass(frozen=True)
class MyConfig(Config):
    steps: Count = 32  # rollout length per environment row
    blame: NonNegative = 0.5  # weight of actions that went worse than expected; 1 is plain actor-critic
    lr: Positive = 2e-3  # step size of Adam, which falls to 0 over the run
    net: Net = Net()


class MyAlgo(Algorithm):
    Config = MyConfig
    runners = ("sync", "async")

    def build(self):
        self.policy, self.critic = Policy(self.spec, self.config.net), Critic(self.spec, self.config.net)
        self.optim = self.optimiser([self.policy, self.critic], linear(self.config.lr, 0.0), clip=0.5)
        self.values = forward(self.critic, self.acting)

    def agent(self, rank=0, ranks=1):
        return PolicyAgent(self.policy, self.agent_seeds(rank), self.acting)

    def buffer(self):
        return RolloutBuffer(self.config.steps)

    def update(self, rollout, clock):
        advantage, target = gae(rollout, *rollout.values(self.values), gamma=0.99, lam=0.95)
        loss, metrics = self.loss(rollout.samples(advantage, target, self.device))
        self.optim.minimise(loss, clock)
        return Result(metrics)

    def loss(self, batch):
        log_prob, entropy = self.policy.head.log_prob_and_entropy(self.policy(batch.obs), batch.action)
        gain = batch.advantage.clamp(min=0) + self.config.blame * batch.advantage.clamp(max=0)
        value = (self.critic(batch.obs) - batch.target).square()
        loss = batch.mean(0.5 * value - log_prob * gain - 0.01 * entropy)
        return loss, {"loss/value": batch.mean(value.detach())}
