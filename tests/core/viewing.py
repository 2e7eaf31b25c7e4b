"""Actor-critics with `net.obs` and `critic_net.obs`: a right one, and wrong ones that mix up networks or keys."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor, nn

from rlplug_core.acting.policy_agent import PolicyAgent
from rlplug_core.errors import UsageError
from rlplug_core.nets.forward import fast_forward
from rlplug_core.nets.net import CriticNet, Net
from rlplug_core.nets.policies import Critic, PolicyNetwork
from rlplug_core.types import Obs
from tests.core.fakes import Tiny, TinyConfig


@dataclass(frozen=True)
class ViewingConfig(TinyConfig):
    critic_net: CriticNet = CriticNet()


class Views(Tiny):
    """Each network is built from its own options."""

    Config = ViewingConfig
    config: ViewingConfig

    def nets(self) -> tuple[Net, Net]:
        """The options of the policy's network, and of the critic's."""
        return self.config.net, self.config.critic_net.over(self.config.net)

    def networks(self) -> tuple[PolicyNetwork, Critic]:
        policy, critic = self.nets()
        return PolicyNetwork(self.spec, policy), Critic(self.spec, critic)

    def build(self) -> None:
        self.policy, self.critic = self.networks()
        self.optim = self.optimizer("actor_critic", self.trained())
        self.values = fast_forward(self.critic, self.inference_backend)

    def trained(self) -> list[nn.Module]:
        return [self.policy, self.critic]


@dataclass(frozen=True)
class LinearConfig(ViewingConfig):
    net: Net = Net(hidden=())


class Linear(Views):
    """It has no hidden layers unless `net.hidden` says so."""

    Config = LinearConfig


class IgnoresCriticNet(Views):
    def nets(self) -> tuple[Net, Net]:
        return self.config.net, self.config.net


class IgnoresNetObs(Views):
    def nets(self) -> tuple[Net, Net]:
        policy, critic = super().nets()
        return replace(policy, obs=()), critic


class IgnoresCriticObs(Views):
    def nets(self) -> tuple[Net, Net]:
        policy, critic = super().nets()
        return policy, replace(critic, obs=())


class ActsOnTheCriticsView(Views):
    def nets(self) -> tuple[Net, Net]:
        policy, critic = super().nets()
        return replace(policy, obs=critic.obs), critic


class BuildsTheCriticLikeTheActor(Views):
    def nets(self) -> tuple[Net, Net]:
        return self.config.net, replace(self.config.net, obs=self.config.critic_net.obs)


class BuildsTheActorLikeTheCritic(Views):
    def nets(self) -> tuple[Net, Net]:
        policy, critic = super().nets()
        return replace(critic, obs=policy.obs), critic


class LeavesTheCriticUntrained(Views):
    """Its values are 0, and the critic is never trained."""

    def build(self) -> None:
        super().build()
        nn.init.zeros_(self.critic.output.weight)

    def trained(self) -> list[nn.Module]:
        return [self.policy]

    def loss(self, batch):  # type: ignore[no-untyped-def]
        log_prob, _ = self.policy.head.log_prob_and_entropy(self.policy(batch.obs), batch.action)
        loss = batch.mean(-log_prob * batch.advantage)
        return loss, {"loss/policy": loss.detach()}


class PolicyWithValue(nn.Module):
    """A policy that also computes a value, which does not affect the action."""

    def __init__(self, policy: PolicyNetwork, critic: Critic) -> None:
        super().__init__()
        self.policy = policy
        self.critic = critic

    def forward(self, obs: Obs) -> Tensor:
        outputs: Tensor = self.policy(obs)
        value: Tensor = self.critic(obs)
        head = self.policy.head
        greedy = outputs.argmax(-1) if outputs.shape[-1] == 2 else outputs[:, : head.dims].reshape(-1, *head.shape)
        return greedy + (0 * value).to(greedy.dtype).reshape(-1, *[1] * (greedy.ndim - 1))


class ExportsItsCritic(Views):
    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        agent = super().agent(rank, ranks)
        agent.exported = lambda: PolicyWithValue(self.policy, self.critic)
        return agent


class RefusesItsOptions(Views):
    def nets(self) -> tuple[Net, Net]:
        if self.config.net.obs:
            raise UsageError("the policy reads all keys")
        return super().nets()


class RefusesDicts(Views):
    def nets(self) -> tuple[Net, Net]:
        if not self.spec.obs.shape:
            raise UsageError("observations must be vectors")
        return super().nets()
