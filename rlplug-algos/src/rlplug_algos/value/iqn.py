"""Implicit quantile networks, IQN (Dabney et al., 2018, arXiv:1806.06923)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

import rlplug_core as rl


@dataclass(frozen=True)
class IQNConfig(rl.Config):
    """Options of IQN."""

    learning_starts: rl.Count = 1_000  # env steps before the first gradient step
    random_steps: rl.Natural = 0  # env steps at the start with random actions
    train_freq: rl.Count = 4  # env steps between updates
    gradient_steps: rl.Count = 1  # gradient steps per update
    batch_size: rl.Count = 64  # transitions per gradient step
    buffer_size: rl.Count = 100_000  # size of the replay buffer in transitions
    # storage of the observations: memory, disk or cuda
    buffer_storage: rl.Store = "memory"
    priority: rl.PriorityOptions = rl.PriorityOptions()
    n_step: rl.Count = 1  # number of rewards in an n-step return
    gamma: rl.Scheduled[rl.Fraction] = 0.99  # discount per step
    exploration_initial_eps: rl.Fraction = 1.0  # initial probability of a random action
    exploration_final_eps: rl.Fraction = 0.05  # final probability of a random action
    exploration_fraction: rl.Positive = 0.2  # fraction of the run until the final probability
    # more points of the exploration schedule: fraction of the run, probability, fraction, probability, and so on
    exploration_points: tuple[float, ...] = ()
    # actor i of N explores with eps ** (1 + this * i / (N - 1)); 0: all actors alike
    exploration_alpha: rl.NonNegative = 0.0
    eval_eps: rl.Fraction = 0.0  # probability of a random action in evaluation
    # choose actions by a softmax of the values at this temperature; default: epsilon-greedy
    softmax_temperature: rl.Scheduled[rl.Positive] | None = None
    # choose the target's action with the online network (van Hasselt et al., 2016)
    double: bool = False
    target_update_interval: rl.Count = 250  # gradient steps between updates of the target network
    # Polyak averaging of the target network; 1: copy
    tau: rl.Scheduled[rl.UnitInterval] = 1.0
    n_quantiles: rl.Count = 8  # sampled quantiles per transition (N)
    n_target_quantiles: rl.Count = 8  # sampled quantiles per target (N')
    # evenly spaced quantiles; their mean is an action's value (K)
    n_acting_quantiles: rl.Count = 32
    # the quantile loss is squared for errors below this, linear above
    kappa: rl.Scheduled[rl.Positive] = 1.0
    dueling: bool = False  # separate streams for state value and advantages (Wang et al., 2016)
    # explore with noise on the weights of the last layers (Fortunato et al., 2018)
    noisy: rl.Noise | None = None
    # initial standard deviation of the noise; default: the paper's
    noisy_sigma: rl.Positive | None = None
    # memory of the network: gru, lstm, a plugin's id, or ./mine.py:Mine; with options: gru:units=128
    memory: rl.Importable | None = None
    # with a memory, steps of a sequence that train the network; default: 20
    sequence_length: rl.Count | None = None
    # with a memory, earlier steps of a sequence that only warm up the recurrent state; default: 10
    burn_in: rl.Natural | None = None
    # with a memory, steps between the starts of sequences; default: half of sequence_length
    sequence_period: rl.Count | None = None
    net: rl.Net = rl.Net(hidden=(256, 256), activation="relu")
    learning_rate: rl.Scheduled[rl.Positive] = 5e-4  # learning rate of the optimizer
    anneal_lr: bool = False  # decrease the learning rate to 0 over the run
    max_grad_norm: rl.Scheduled[rl.Positive] = 10.0  # largest gradient norm
    optimizer: rl.OptimizerName = "adam"  # optimizer of the network
    optimizer_kwargs: rl.OptimizerOptions = rl.OptimizerOptions()

    search = {
        "learning_rate": rl.log(1e-5, 1e-2),
        "n_step": rl.integer(1, 5),
        "target_update_interval": rl.integer(50, 2000),
        "priority.alpha": rl.uniform(0.0, 1.0),
        "n_quantiles": rl.integer(1, 64),
        "n_target_quantiles": rl.integer(1, 64),
        "kappa": rl.log(0.1, 10.0),
    }

    def __post_init__(self) -> None:
        rl.check_no_sequences(self.memory, self.sequence_length, self.burn_in, self.sequence_period)
        rl.check_exploration(
            self.exploration_fraction, self.exploration_points, self.noisy, self.softmax_temperature
        )


class IQN(rl.Algorithm[rl.Transitions]):
    """Q-learning on quantiles of the return at sampled fractions; acts by the mean of evenly spaced quantiles."""

    Config = IQNConfig
    runners: ClassVar[tuple[str, ...]] = ("sync", "decoupled")
    data_parallel: ClassVar[bool] = True
    actions: ClassVar[tuple[str, ...]] = ("Discrete",)
    config: IQNConfig

    def build(self) -> None:
        c = self.config
        self.q_network = rl.q_network(
            self.spec,
            c.net,
            c.memory,
            c.burn_in,
            make=partial(rl.ImplicitQ, shares=c.n_acting_quantiles),
            dueling=c.dueling,
            noisy=c.noisy,
            sigma=c.noisy_sigma,
        ).to(self.device)
        self.target_network = rl.target_network(self.q_network)
        self.q_optimizer = self.optimizer("q_network", [self.q_network])
        self.target = rl.Target(self.q_network, self.target_network)

    def agent(self, rank: int = 0, ranks: int = 1) -> rl.EpsilonGreedy:
        return rl.explorer_from_options(self, self.q_network, rank, ranks)

    def buffer(self) -> rl.ReplayBuffer:
        return rl.replay_from_options(self)

    def learn(
        self,
        batch: rl.Transitions,
        now: IQNConfig,
        clock: rl.Clock,
    ) -> rl.Result:
        # Noise of noisy layers for each forward pass: online, target, and online again with `double`.
        noise = self.q_network.noise(self.generator, 2 + now.double)
        count = now.n_quantiles + now.n_target_quantiles
        draws = torch.from_numpy(
            self.generator.random((len(batch.weight), count), dtype=np.float32)
        )
        fractions = draws.to(self.device).split([now.n_quantiles, now.n_target_quantiles], 1)
        loss, metrics, td_error = self.loss(batch, noise, fractions, now)
        metrics["loss/gradient_norm"] = self.q_optimizer.minimize(loss, clock)
        if rl.due(clock.updates, clock.updates + 1, now.target_update_interval):
            self.target.move(now.tau)
        return rl.Result(metrics, priority=rl.replay_priority(batch, td_error))

    @rl.pure
    def loss(
        self,
        batch: rl.Transitions,
        noise: list[Tensor] | list[None],
        fractions: tuple[Tensor, ...],
        now: IQNConfig,
    ) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        """Return the quantile Huber loss (eq. 3) of sampled quantiles and targets r + discount * Z_target(s', a')."""
        quantiles = rl.gather_actions(
            self.q_network.at_steps(batch, noise[0], fractions[0]), batch.action
        )
        next_quantiles = self.next_quantiles(batch, noise, fractions[1], now)
        target = batch.reward.unsqueeze(1) + batch.discount.unsqueeze(1) * next_quantiles
        q = quantiles.detach().mean(1)
        loss = batch.mean(rl.quantile_huber(quantiles, fractions[0], target, now.kappa))
        metrics = {"loss/value": loss.detach(), "loss/q_mean": batch.mean(q)}
        return loss, metrics, (target.mean(1) - q).abs()

    @torch.no_grad()
    def next_quantiles(
        self,
        batch: rl.Transitions,
        noise: list[Tensor] | list[None],
        fractions: Tensor,
        now: IQNConfig,
    ) -> Tensor:
        """Return the target network's quantiles [B, N'] of the best next actions.

        The best action has the highest mean of evenly spaced quantiles; with `double` they are the online network's.
        """
        if now.double:
            drawn = self.target_network.after_steps(batch, noise[1], fractions)
            values = self.q_network.expected(self.q_network.after_steps(batch, noise[2]))
            return rl.gather_actions(drawn, rl.masked(values, batch.next_obs).argmax(1))
        middles = self.target_network.middles
        both = torch.cat([fractions, middles.expand(len(fractions), -1)], 1)
        distribution = self.target_network.after_steps(batch, noise[1], both)
        drawn, even = distribution.split([fractions.shape[1], len(middles)], 2)
        return rl.gather_actions(drawn, rl.masked(even.mean(-1), batch.next_obs).argmax(1))
