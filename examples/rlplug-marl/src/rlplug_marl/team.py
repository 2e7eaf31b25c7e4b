"""Q-learning for teams: VDN (Sunehag et al., 2017, arXiv:1706.05296), QMIX (Rashid et al., 2018, arXiv:1803.11485)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

import rlplug_core as rl
from rlplug_marl.mixers import Monotonic, Sum


@dataclass(frozen=True)
class VDNConfig(rl.Config):
    """Options of VDN."""

    learning_starts: rl.Count = 1_000  # env steps before the first gradient step
    train_freq: rl.Count = 4  # env steps between updates
    gradient_steps: rl.Count = 1  # gradient steps per update
    batch_size: rl.Count = 64  # joint transitions per gradient step
    buffer_size: rl.Count = 100_000  # size of the replay buffer in joint transitions
    # storage of the observations: memory, disk or cuda
    buffer_storage: rl.Store = "memory"
    n_step: rl.Count = 1  # number of rewards in an n-step return
    gamma: rl.Scheduled[rl.Fraction] = 0.99  # discount per step
    exploration_initial_eps: rl.Fraction = 1.0  # initial probability of a random action
    exploration_final_eps: rl.Fraction = 0.05  # final probability of a random action
    exploration_fraction: rl.Positive = 0.2  # fraction of the run until the final probability
    separate: bool = True  # each agent has its own network; else all share one
    double: bool = True  # choose the target's actions with the online networks
    target_update_interval: rl.Count = 200  # gradient steps between updates of the target networks
    net: rl.Net = rl.Net(hidden=(64, 64), activation="relu")
    learning_rate: rl.Scheduled[rl.Positive] = 5e-4  # learning rate of the optimizer
    max_grad_norm: rl.Scheduled[rl.Positive] = 10.0  # largest gradient norm
    optimizer: rl.OptimizerName = "adam"  # optimizer of networks and mixer
    optimizer_kwargs: rl.OptimizerOptions = rl.OptimizerOptions()

    search = {"learning_rate": rl.log(1e-5, 1e-2)}


@dataclass(frozen=True)
class QMIXConfig(VDNConfig):
    """Options of QMIX."""

    mixer_width: rl.Count = 32  # hidden units of the mixing network


class VDN(rl.Algorithm[rl.Transitions]):
    """Value decomposition: the value of the team's joint action is the sum of the agents' values."""

    Config = VDNConfig
    runners: ClassVar[tuple[str, ...]] = ("sync", "decoupled")
    actions: ClassVar[tuple[str, ...]] = ("Discrete",)
    abilities: ClassVar[tuple[str, ...]] = ("at once",)
    config: VDNConfig

    def build(self) -> None:
        own = rl.agent_spec(self.spec)
        self.agents = self.spec.agents_per_world
        networks = self.agents if self.config.separate else 1
        self.q_network = rl.PerAgent(lambda: rl.QNetwork(own, self.config.net), networks)
        self.mixer = self.make_mixer()
        self.target_network = rl.target_network(self.q_network)
        self.target_mixer = rl.target_network(self.mixer)
        self.to(self.device)
        self.q_optimizer = self.optimizer("q", [self.q_network, self.mixer])
        self.target = rl.Target(
            nn.ModuleList([self.q_network, self.mixer]),
            nn.ModuleList([self.target_network, self.target_mixer]),
        )

    def make_mixer(self) -> nn.Module:
        """Return the module from values [B, A] and joint observations to Q_tot [B]."""
        return Sum()

    def agent(self, rank: int = 0, ranks: int = 1) -> rl.EpsilonGreedy:
        c = self.config
        epsilon = rl.epsilon_schedule(
            c.exploration_initial_eps, c.exploration_final_eps, c.exploration_fraction
        )
        seeds = self.agent_seeds(rank)
        return rl.EpsilonGreedy(self.q_network, epsilon, seeds, self.inference_backend)

    def buffer(self) -> rl.ReplayBuffer:
        return rl.replay_from_options(self, self.agents)

    def learn(self, batch: rl.Transitions, now: VDNConfig, clock: rl.Clock) -> rl.Result:
        loss, metrics = self.loss(batch, now)
        metrics["loss/gradient_norm"] = self.q_optimizer.minimize(loss, clock)
        if rl.due(clock.updates, clock.updates + 1, now.target_update_interval):
            self.target.move(1.0)
        return rl.Result(metrics)

    @rl.pure
    def loss(self, batch: rl.Transitions, now: VDNConfig) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the squared error of Q_tot of the joint actions [B, A] (QMIX, eq. 6); and metrics."""
        values = self.values(self.q_network, batch.obs)
        chosen = values.gather(2, batch.action.unsqueeze(2)).squeeze(2)
        q = self.mixer(chosen, batch.obs)
        target = batch.reward + batch.discount * self.next_value(batch, now)
        loss = batch.mean((q - target).square())
        return loss, {"loss/value": loss.detach(), "loss/q_mean": batch.mean(q.detach())}

    @torch.no_grad()
    def next_value(self, batch: rl.Transitions, now: VDNConfig) -> Tensor:
        """Return the target networks' Q_tot [B] of the best next actions, those of each agent's own values."""
        values = self.values(self.target_network, batch.next_obs)
        best = self.values(self.q_network, batch.next_obs) if now.double else values
        chosen = values.gather(2, best.argmax(2, keepdim=True)).squeeze(2)
        mixed: Tensor = self.target_mixer(chosen, batch.next_obs)
        return mixed

    def values(self, network: nn.Module, obs: dict[str, Tensor]) -> Tensor:
        """Return the action values [B, A, actions] of all agents."""
        values: Tensor = network(rl.agent_rows(obs)).unflatten(0, (-1, self.agents))
        return values


class QMIX(VDN):
    """The team's value rises with each agent's value, by a mixing network that knows the state of the world."""

    Config = QMIXConfig
    config: QMIXConfig

    def make_mixer(self) -> nn.Module:
        return Monotonic(self.spec, self.config.mixer_width)
