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
    random_steps: rl.Natural = 0  # env steps at the beginning that act at random
    train_freq: rl.Count = 16  # env steps between updates
    gradient_steps: rl.Count = 1  # gradient steps per update
    batch_size: rl.Count = 32  # sequences per gradient step
    sequence_length: rl.Count = 20  # steps of a sequence that are learned from
    burn_in: rl.Natural = 10  # steps before them, in which only the memory is made
    # steps from one sequence of a row to the next; none is half their length
    sequence_period: rl.Count | None = None
    buffer_size: rl.Count = 100_000  # env steps kept in the replay buffer
    # where the replay buffer keeps observations: memory, disk or cuda
    buffer_storage: rl.Store = "memory"
    priority: rl.PriorityOptions = rl.PriorityOptions(alpha=0.9, beta=0.6)
    # share of the largest TD error in a sequence's priority
    priority_eta: rl.Scheduled[rl.Fraction] = 0.9
    n_step: rl.Count = 5  # rewards summed before bootstrapping
    gamma: rl.Scheduled[rl.Fraction] = 0.997  # discount per step
    exploration_initial_eps: rl.Fraction = 1.0  # chance of a random action at the beginning
    exploration_final_eps: rl.Fraction = 0.05  # chance of a random action at the end
    exploration_fraction: rl.Positive = 0.2  # share of the run over which that chance falls
    # further points on its way, each a share of the run and a chance
    exploration_points: tuple[float, ...] = ()
    # actor i of N explores with eps ** (1 + this * i / (N - 1)); 0 is alike
    exploration_alpha: rl.NonNegative = 0.0
    eval_eps: rl.Fraction = 0.0  # chance of a random action in evaluation
    # let the online network choose the target's action (van Hasselt et al., 2016)
    double: bool = True
    target_update_interval: rl.Count = 250  # gradient steps between updates of the target network
    # how far the target network moves: 1 copies, less is Polyak averaging
    tau: rl.Scheduled[rl.Share] = 1.0
    # learn values on a scale that grows like their root (Pohlen et al., 2018)
    rescale_values: bool = True
    dueling: bool = True  # separate streams for state value and advantages (Wang et al., 2016)
    recurrent_cell: rl.CellName = "lstm"  # kind of the recurrent layer
    recurrent_hidden_size: rl.Count = 64  # units of that layer
    net: rl.Net = rl.Net(activation="relu")
    learning_rate: rl.Scheduled[rl.Positive] = 5e-4  # learning rate of the optimizer
    anneal_lr: bool = False  # let the learning rate fall to 0 over the run
    max_grad_norm: rl.Scheduled[rl.Positive] = 40.0  # clip the gradient to this norm
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
        if self.priority.eviction != "oldest":
            raise ValueError(
                "sequences overlap, so the oldest step makes room; leave priority.eviction at oldest"
            )


class R2D2(rl.Algorithm[rl.Transitions]):
    """Double Q-learning of a network with a memory on replayed sequences, which begin with the memory of the actor."""

    Config = R2D2Config
    runners: ClassVar[tuple[str, ...]] = ("sync", "decoupled")
    actions: ClassVar[tuple[str, ...]] = ("Discrete",)
    config: R2D2Config

    def build(self) -> None:
        c = self.config
        self.q_network = rl.RecurrentQ(
            self.spec, c.net, c.recurrent_cell, c.recurrent_hidden_size, c.dueling
        )
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
        c = self.config
        shape = rl.SequenceShape(
            c.sequence_length, c.burn_in, c.sequence_period or -(-c.sequence_length // 2)
        )
        beta = c.schedules.get("priority.beta") or rl.linear(c.priority.beta, 1.0)
        return rl.SequenceReplay(
            shape,
            c.buffer_size,
            rl.Pace(c.batch_size, c.train_freq, c.gradient_steps, c.learning_starts),
            n_step=c.n_step,
            gamma=self.schedule("gamma"),
            seeds=self.seeds.child("buffer"),
            device=self.device,
            priority=rl.Priority(c.priority.alpha, beta, c.priority.eps),
            store=c.buffer_storage,
        )

    def learn(self, batch: rl.Transitions, now: R2D2Config, clock: rl.Clock) -> rl.Result:
        loss, metrics, error = self.loss(batch, self.td_target(batch, now), now)
        metrics["loss/gradient_norm"] = self.q_optimizer.minimize(loss, clock)
        if rl.due(clock.updates, clock.updates + 1, now.target_update_interval):
            self.target.move(now.tau)
        shape = (-1, len(batch.index))
        priority = rl.sequence_priority(
            error.view(shape), batch.weight.view(shape), now.priority_eta
        )
        return rl.Result(metrics, priority=priority)

    @torch.no_grad()
    def td_target(self, batch: rl.Transitions, now: R2D2Config) -> Tensor:
        """h(r + discount * h^-1(Q_target(s', a'))) [T * B], where a' is the best action of the online network."""
        values = [
            network.after(batch, network.along(batch, 0))
            for network in (self.q_network, self.target_network)
        ]
        next_q = rl.of_action(values[1], values[0 if now.double else 1].argmax(1))
        if not now.rescale_values:
            return batch.reward + batch.discount * next_q
        return rl.rescaled(batch.reward + batch.discount * rl.unscaled(next_q))

    @rl.pure
    def loss(
        self, batch: rl.Transitions, target: Tensor, now: R2D2Config
    ) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        """Half the squared error of Q(s, a) with the memory of each step; no gradient goes through the burn-in."""
        q = self.q_network.on(self.q_network.along(batch, now.burn_in), batch.obs)
        error = target - rl.of_action(q, batch.action)
        loss = batch.mean(0.5 * error.square())
        metrics = {
            "loss/value": loss.detach(),
            "loss/q_mean": batch.mean((target - error).detach()),
        }
        return loss, metrics, error.detach()
