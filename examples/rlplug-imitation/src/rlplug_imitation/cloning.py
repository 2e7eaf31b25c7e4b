"""Behavioral cloning (Pomerleau, 1991), and DAgger, which asks the expert (Ross et al., 2011, arXiv:1011.0686)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

import rlplug_core as rl


@dataclass(frozen=True)
class BCConfig(rl.Config):
    """Options of behavioral cloning and DAgger."""

    batch_size: rl.Count = (
        256  # transitions per gradient step, and demonstrations per gradient step
    )
    # env steps before the first gradient step; not used offline
    learning_starts: rl.Count = 500
    train_freq: rl.Count = 1  # env steps between updates
    gradient_steps: rl.Count = 1  # gradient steps per update
    buffer_size: rl.Count = 1_000_000  # labeled env steps that are kept
    # storage of the observations: memory, disk or cuda
    buffer_storage: rl.Store = "memory"
    gamma: rl.Fraction = 0.99  # discount per step; imitation does not use it
    # weight of the entropy, which keeps a small variance of continuous actions
    ent_coef: rl.Scheduled[rl.NonNegative] = 1e-2
    net: rl.Net = rl.Net(hidden=(256, 256), activation="relu")
    learning_rate: rl.Scheduled[rl.Positive] = 1e-3  # learning rate of the policy
    anneal_lr: bool = True  # decrease the learning rate to 0 over the run
    max_grad_norm: rl.Scheduled[rl.Positive] = 1.0  # largest gradient norm
    optimizer: rl.OptimizerName = "adam"  # optimizer of the policy
    optimizer_kwargs: rl.OptimizerOptions = rl.OptimizerOptions()

    search = {"learning_rate": rl.log(1e-4, 1e-2), "ent_coef": rl.log(1e-4, 0.1)}


class BC(rl.Algorithm[rl.Transitions]):
    """Maximizes the likelihood of the actions in a data set: `rlplug run bc ENV --offline --dataset FILE.npz`."""

    Config = BCConfig
    actions: ClassVar[tuple[str, ...]] = rl.SPACES
    config: BCConfig

    def build(self) -> None:
        self.policy = rl.PolicyNetwork(self.spec, self.config.net)
        self.policy_optimizer = self.optimizer("policy", [self.policy])

    def agent(self, rank: int = 0, ranks: int = 1) -> rl.PolicyAgent:
        return rl.PolicyAgent(self.policy, self.agent_seeds(rank), self.inference_backend)

    def buffer(self) -> rl.ReplayBuffer:
        return rl.replay_from_options(self)

    def learn(self, batch: rl.Transitions, now: BCConfig, clock: rl.Clock) -> rl.Result:
        loss, metrics = self.loss(batch, batch.action, now)
        norm = self.policy_optimizer.minimize(loss, clock)
        return rl.Result({**metrics, "loss/gradient_norm": norm})

    @rl.pure
    def loss(
        self, batch: rl.Transitions, action: Tensor, now: BCConfig
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return -log pi(action | obs) minus the entropy bonus; and metrics."""
        outputs = self.policy(batch.obs)
        log_prob, entropy = self.policy.head.log_prob_and_entropy(outputs, action)
        loss = -batch.mean(log_prob + now.ent_coef * entropy)
        metrics = {"loss/log_prob": log_prob, "loss/entropy": entropy}
        return loss, {name: batch.mean(term.detach()) for name, term in metrics.items()}


class DAgger(BC):
    """Also imitates the expert's actions for its own observations; `--wrap expert:run=RUN` provides these actions.

    The demonstrations of `--dataset`, if any, stay in every update.
    """

    signals: ClassVar[tuple[str, ...]] = ("expert_action",)
    dataset_use: ClassVar[Any] = "optional"
    runners: ClassVar[tuple[str, ...]] = ("sync", "decoupled")
    actions: ClassVar[tuple[str, ...]] = ("Discrete", "Box")

    def learn(self, batch: rl.Transitions, now: BCConfig, clock: rl.Clock) -> rl.Result:
        labels = batch.extras["expert_action"].reshape(batch.action.shape).to(batch.action.dtype)
        loss, metrics = self.loss(batch, labels, now)
        if self.dataset is not None:
            shown = self.dataset.batch(now.batch_size)
            loss = 0.5 * (loss + self.loss(shown, shown.action, now)[0])
        norm = self.policy_optimizer.minimize(loss, clock)
        return rl.Result({**metrics, "loss/gradient_norm": norm})
