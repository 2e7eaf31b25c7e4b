"""Recurrent replay distributed DQN, R2D2 (Kapturowski et al., 2019, openreview.net/forum?id=r1lyTjAqYX)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

import rlplug_core as rl


@dataclass(frozen=True)
class R2D2Config(rl.Config):
    """Options of R2D2."""

    learning_starts: rl.Count = 1_000  # env steps before the first gradient step
    random_steps: rl.Natural = 0  # env steps at the start with random actions
    train_freq: rl.Count = 16  # env steps between updates
    gradient_steps: rl.Count = 1  # gradient steps per update
    batch_size: rl.Count = 32  # sequences per gradient step
    sequence_length: rl.Count = 20  # steps of a sequence that train the network
    burn_in: rl.Natural = 10  # earlier steps of a sequence that only warm up the recurrent state
    # steps between the starts of sequences; default: half of sequence_length
    sequence_period: rl.Count | None = None
    buffer_size: rl.Count = 100_000  # size of the replay buffer in env steps
    # storage of the observations: memory, disk or cuda
    buffer_storage: rl.Store = "memory"
    priority: rl.PriorityOptions = rl.PriorityOptions(alpha=0.9, beta=0.6)
    # weight of the largest TD error in a sequence's priority
    priority_eta: rl.Scheduled[rl.Fraction] = 0.9
    n_step: rl.Count = 5  # number of rewards in an n-step return
    gamma: rl.Scheduled[rl.Fraction] = 0.997  # discount per step
    exploration_initial_eps: rl.Fraction = 1.0  # initial probability of a random action
    exploration_final_eps: rl.Fraction = 0.05  # final probability of a random action
    exploration_fraction: rl.Positive = 0.2  # fraction of the run until the final probability
    # more points of the exploration schedule: fraction of the run, probability, fraction, probability, and so on
    exploration_points: tuple[float, ...] = ()
    # actor i of N explores with eps ** (1 + this * i / (N - 1)); 0: all actors alike
    exploration_alpha: rl.NonNegative = 0.0
    eval_eps: rl.Fraction = 0.0  # probability of a random action in evaluation
    # choose the target's action with the online network (van Hasselt et al., 2016)
    double: bool = True
    target_update_interval: rl.Count = 250  # gradient steps between updates of the target network
    # Polyak averaging of the target network; 1: copy
    tau: rl.Scheduled[rl.UnitInterval] = 1.0
    # learn values on a square-root scale (Pohlen et al., 2018)
    rescale_values: bool = True
    dueling: bool = True  # separate streams for state value and advantages (Wang et al., 2016)
    # memory: gru, lstm, a plugin's id, or ./mine.py:Mine, with options: gru:units=128; default: lstm
    memory: rl.Importable | None = None
    recurrent_cell: rl.CellName | None = None  # former name of memory
    recurrent_hidden_size: rl.Count | None = None  # former name of the option units of a memory
    net: rl.Net = rl.Net(activation="relu")
    learning_rate: rl.Scheduled[rl.Positive] = 5e-4  # learning rate of the optimizer
    anneal_lr: bool = False  # decrease the learning rate to 0 over the run
    max_grad_norm: rl.Scheduled[rl.Positive] = 40.0  # largest gradient norm
    optimizer: rl.OptimizerName = "adam"  # optimizer of the network
    optimizer_kwargs: rl.OptimizerOptions = rl.OptimizerOptions()

    search = {
        "learning_rate": rl.log(1e-5, 1e-2),
        "n_step": rl.integer(1, 10),
        "burn_in": rl.integer(0, 40),
        "target_update_interval": rl.integer(50, 2500),
        "priority.alpha": rl.uniform(0.0, 1.0),
    }

    def __post_init__(self) -> None:
        rl.check_exploration(self.exploration_fraction, self.exploration_points, None, None)


class R2D2(rl.Algorithm[rl.Transitions]):
    """Double Q-learning with a recurrent network on replayed sequences that start with the actor's state."""

    Config = R2D2Config
    runners: ClassVar[tuple[str, ...]] = ("sync", "decoupled")
    actions: ClassVar[tuple[str, ...]] = ("Discrete",)
    config: R2D2Config

    def build(self) -> None:
        c = self.config
        memory = rl.memory_option(c.memory or "lstm", c.recurrent_cell, c.recurrent_hidden_size)
        self.q_network = rl.RecurrentQ(self.spec, c.net, memory, dueling=c.dueling)
        self.q_optimizer = self.optimizer("q_network", [self.q_network])
        self.target_network = rl.target_network(self.q_network)
        self.target = rl.Target(self.q_network, self.target_network)

    def agent(self, rank: int = 0, ranks: int = 1) -> rl.MemoryGreedy:
        c = self.config
        epsilon = rl.epsilon_schedule(
            c.exploration_initial_eps,
            c.exploration_final_eps,
            c.exploration_fraction,
            c.exploration_points,
        )
        return rl.MemoryGreedy(
            self.q_network,
            rl.actor_epsilon(epsilon, rank, ranks, c.exploration_alpha),
            self.agent_seeds(rank),
            self.inference_backend,
            warmup=c.random_steps,
            evaluation=c.eval_eps,
        )

    def buffer(self) -> rl.SequenceReplay:
        return rl.sequences_from_options(self, self.config.batch_size)

    def learn(
        self,
        batch: rl.Transitions,
        now: R2D2Config,
        clock: rl.Clock,
    ) -> rl.Result:
        loss, metrics, error = self.loss(batch, self.td_target(batch, now), now)
        metrics["loss/gradient_norm"] = self.q_optimizer.minimize(loss, clock)
        if rl.due(clock.updates, clock.updates + 1, now.target_update_interval):
            self.target.move(now.tau)
        return rl.Result(metrics, priority=rl.replay_priority(batch, error, now.priority_eta))

    @torch.no_grad()
    def td_target(self, batch: rl.Transitions, now: R2D2Config) -> Tensor:
        """Return h(r + discount * h^-1(Q_target(s', a'))) [T * B]; h is the scale of `rescale_values`, if it is on.

        With `double` the online network chooses a'.
        """
        online_q, target_q = (
            network.after(batch, network.along(batch, 0))
            for network in (self.q_network, self.target_network)
        )
        next_q = rl.of_action(target_q, (online_q if now.double else target_q).argmax(1))
        if not now.rescale_values:
            return batch.reward + batch.discount * next_q
        return rl.rescaled(batch.reward + batch.discount * rl.unscaled(next_q))

    @rl.pure
    def loss(
        self,
        batch: rl.Transitions,
        target: Tensor,
        now: R2D2Config,
    ) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        """Return half the squared error of Q(s, a), metrics and TD errors [T * B]; the burn-in has no gradient."""
        q = self.q_network.from_memory(self.q_network.along(batch, now.burn_in), batch.obs)
        error = target - rl.of_action(q, batch.action)
        loss = batch.mean(0.5 * error.square())
        metrics = {
            "loss/value": loss.detach(),
            "loss/q_mean": batch.mean((target - error).detach()),
        }
        return loss, metrics, error.detach()
