"""Parallel Q-learning without replay or a target network (PQN; Gallici et al., 2024, arXiv:2407.04811)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

import rlplug_core as rl


@dataclass(frozen=True)
class PQNConfig(rl.Config):
    """Options of PQN."""

    n_steps: rl.Count = 32  # rollout length per environment
    batch_size: rl.Count = 256  # samples per minibatch
    n_epochs: rl.Count = 2  # passes over each rollout; an incomplete last minibatch is dropped
    gamma: rl.Scheduled[rl.Fraction] = 0.99  # discount per step
    # lambda of the λ-returns: 0 looks one step ahead, 1 to the end of the rollout
    q_lambda: rl.Scheduled[rl.Fraction] = 0.65
    random_steps: rl.Natural = 0  # env steps at the start with random actions
    exploration_initial_eps: rl.Fraction = 1.0  # initial probability of a random action
    exploration_final_eps: rl.Fraction = 0.05  # final probability of a random action
    exploration_fraction: rl.Positive = 0.2  # fraction of the run until the final probability
    # more points of the exploration schedule: fraction of the run, probability, fraction, probability, and so on
    exploration_points: tuple[float, ...] = ()
    eval_eps: rl.Fraction = 0.0  # probability of a random action in evaluation
    dueling: bool = False  # separate streams for state value and advantages (Wang et al., 2016)
    # LayerNorm replaces the target network
    net: rl.Net = rl.Net(hidden=(128, 128), activation="relu", layer_norm=True)
    learning_rate: rl.Scheduled[rl.Positive] = 2.5e-4  # learning rate of the optimizer
    anneal_lr: bool = True  # decrease the learning rate to 0 over the run
    max_grad_norm: rl.Scheduled[rl.Positive] = 10.0  # largest gradient norm
    optimizer: rl.OptimizerName = "RAdam"  # optimizer of the network
    optimizer_kwargs: rl.OptimizerOptions = rl.OptimizerOptions()

    search = {
        "learning_rate": rl.log(1e-5, 1e-2),
        "q_lambda": rl.uniform(0.0, 1.0),
    }

    def __post_init__(self) -> None:
        rl.check_exploration(self.exploration_fraction, self.exploration_points, None, None)


class PQN(rl.Algorithm[rl.Rollout]):
    """Takes several epochs of minibatch steps on each rollout, towards the λ-returns of its greedy policy."""

    Config = PQNConfig
    runners: ClassVar[tuple[str, ...]] = ("sync",)
    data_parallel: ClassVar[bool] = True
    actions: ClassVar[tuple[str, ...]] = ("Discrete",)
    config: PQNConfig

    def build(self) -> None:
        c = self.config
        self.q_network = rl.QNetwork(self.spec, c.net, c.dueling).to(self.device)
        self.q_optimizer = self.optimizer("q_network", [self.q_network])
        self.predict_q = rl.fast_forward(self.q_network, self.inference_backend)

    def agent(self, rank: int = 0, ranks: int = 1) -> rl.EpsilonGreedy:
        c = self.config
        return rl.EpsilonGreedy(
            self.q_network,
            rl.epsilon_schedule(
                c.exploration_initial_eps,
                c.exploration_final_eps,
                c.exploration_fraction,
                c.exploration_points,
            ),
            self.agent_seeds(rank),
            inference_backend=self.inference_backend,
            warmup=c.random_steps,
            evaluation=c.eval_eps,
        )

    def buffer(self) -> rl.RolloutBuffer:
        return rl.RolloutBuffer(self.config.n_steps)

    def learn(
        self,
        batch: rl.Rollout,
        now: PQNConfig,
        clock: rl.Clock,
    ) -> rl.Result:
        target = self.lambda_return(batch, now)
        # Samples need advantages, which Q-learning does not use, so the target is passed twice.
        samples = batch.samples(target, target, self.device)
        metrics = dict[str, Tensor]()
        for _ in range(now.n_epochs):
            for minibatch in samples.minibatches(now.batch_size, self.generator):
                loss, metrics = self.loss(minibatch)
                norm = self.q_optimizer.minimize(loss, clock, steps_ago=batch.size)
        return rl.Result({**metrics, "loss/gradient_norm": norm})

    def lambda_return(self, batch: rl.Rollout, now: PQNConfig) -> rl.Array:
        """Return r + γ ((1 - λ) max_a Q(s', a) + λ R') [T, N], section 4; R' is the next step's."""
        value, next_value = batch.values(lambda obs: rl.best_value(self.predict_q(obs)))
        return rl.gae(batch, value, next_value, now.gamma, now.q_lambda)[1]

    @rl.pure
    def loss(self, batch: rl.Samples) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the squared error of Q(s, a); the target is a constant."""
        q = rl.of_action(self.q_network(batch.obs), batch.action)
        loss = batch.mean((q - batch.target).square())
        return loss, {"loss/value": loss.detach(), "loss/q_mean": batch.mean(q.detach())}
