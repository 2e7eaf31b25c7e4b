"""Random network distillation: novelty as a second reward with its own value head (Burda et al., 2018).

arXiv:1810.12894. The policy learns with PPO from the sum of both advantages.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from gymnasium import spaces
from torch import Tensor, nn

import rlplug_core as rl


@dataclass(frozen=True)
class RNDConfig(rl.Config):
    """Options of RND."""

    n_steps: rl.Count = 64  # rollout length per environment
    batch_size: rl.Count = 128  # samples per minibatch
    n_epochs: rl.Count = 4  # passes over each rollout
    gamma: rl.Scheduled[rl.Fraction] = 0.99  # discount of rewards per step
    intrinsic_gamma: rl.Scheduled[rl.Fraction] = 0.95  # discount of novelty per step
    gae_lambda: rl.Scheduled[rl.Fraction] = 0.95  # GAE lambda, for both
    ext_coef: rl.Scheduled[rl.NonNegative] = 2.0  # weight of the advantages of rewards
    int_coef: rl.Scheduled[rl.NonNegative] = 1.0  # weight of the advantages of novelty
    clip_range: rl.Scheduled[rl.Positive] = 0.2  # how far the probability ratio may move from 1
    ent_coef: rl.Scheduled[rl.NonNegative] = 0.001  # weight of the entropy bonus in the loss
    features: rl.Count = 32  # outputs of the random network, the targets of the predictor
    net: rl.Net = rl.Net()
    learning_rate: rl.Scheduled[rl.Positive] = 1e-3  # learning rate of all networks
    max_grad_norm: rl.Scheduled[rl.Positive] = 0.5  # clip the gradient to this norm

    search = {"learning_rate": rl.log(1e-5, 1e-2), "int_coef": rl.log(0.1, 10.0)}


class Novelty(nn.Module):
    """The squared errors of a predictor of a random network [B], averaged over its outputs.

    Args:
        inputs: the size of an observation.
        features: outputs of both networks.
    """

    def __init__(self, inputs: int, features: int) -> None:
        super().__init__()
        self.random, self.predictor = (
            nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, features))
            for _ in range(2)
        )
        self.random.requires_grad_(False)

    def forward(self, obs: Tensor) -> Tensor:
        error: Tensor = (self.predictor(obs.float()) - self.random(obs.float())).square().mean(1)
        return error


class RND(rl.Algorithm[rl.Rollout]):
    """PPO with a bonus for observations that a predictor of a random network gets wrong."""

    Config = RNDConfig
    actions: ClassVar[tuple[str, ...]] = ("Discrete", "Box")
    config: RNDConfig
    square: Tensor

    def build(self) -> None:
        c = self.config
        obs = self.spec.obs
        if not isinstance(obs, spaces.Box) or len(obs.shape) != 1:
            raise rl.UsageError(
                f"rnd compares vectors, but observations of {self.spec.id} are {obs}; try --wrap flatten"
            )
        self.networks = rl.PolicyAndCritic(self.spec, replace(c.net, shared=False))
        self.policy = self.networks.policy
        self.critic = self.networks.critic
        self.novelty_critic = rl.Critic(self.spec, c.net)
        self.novelty = Novelty(obs.shape[0], c.features).to(self.device)
        # running mean square of novelty
        self.register_buffer("square", torch.ones((), device=self.device))
        self.all_optimizer = self.optimizer(
            "all",
            [self.policy, self.critic, self.novelty_critic, self.novelty.predictor],
            learning_rate=self.schedule("learning_rate"),
            max_grad_norm=self.schedule("max_grad_norm"),
        )
        self.predict_value = rl.fast_forward(self.critic, self.inference_backend)
        self.predict_novelty = rl.fast_forward(self.novelty_critic, self.inference_backend)
        self.measure_novelty = rl.fast_forward(self.novelty)

    def agent(self, rank: int = 0, ranks: int = 1) -> rl.PolicyAgent:
        return rl.PolicyAgent(
            self.policy, self.agent_seeds(rank), self.inference_backend, log_prob=True
        )

    def buffer(self) -> rl.RolloutBuffer:
        return rl.RolloutBuffer(self.config.n_steps)

    def learn(self, batch: rl.Rollout, now: RNDConfig, clock: rl.Clock) -> rl.Result:
        advantage, target = rl.gae(
            batch, *batch.values(self.predict_value), now.gamma, now.gae_lambda
        )
        reward = self.intrinsic(batch)
        new, new_target = rl.gae(
            replace(batch, reward=reward / float(self.square.sqrt()), views=None),
            *batch.values(self.predict_novelty),
            now.intrinsic_gamma,
            now.gae_lambda,
        )
        samples = batch.samples(now.ext_coef * advantage + now.int_coef * new, target, self.device)
        novelty = rl.to_tensors(new_target.reshape(-1), self.device)
        samples = replace(
            samples, extras={**samples.extras, "novelty": novelty}, share=samples.counts
        )
        for _ in range(now.n_epochs):
            for minibatch in samples.minibatches(now.batch_size, self.generator):
                loss, metrics = self.loss(minibatch, now)
                norm = self.all_optimizer.minimize(loss, clock)
        valid = batch.weight > 0
        if valid.any():
            self.square.lerp_(torch.tensor(float((reward[valid] ** 2).mean()) + 1e-8), 0.05)
        return rl.Result(
            {**metrics, "loss/gradient_norm": norm, "rnd/novelty": float(reward.mean())}
        )

    def intrinsic(self, batch: rl.Rollout) -> rl.Array:
        """Return the novelty [T, N] of the successor of each step; 0 after a termination or for an absent row."""
        _, novelty = batch.values(self.measure_novelty)
        valid = batch.weight > 0
        ended = batch.terminated | batch.truncated
        reward = novelty * (valid & ~batch.terminated)
        reward[:-1] *= ended[:-1] | valid[1:]  # else the successor is in a row that is absent
        return reward

    @rl.pure
    def loss(self, batch: rl.Samples, now: RNDConfig) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the sum of PPO's clipped loss, the entropy bonus, squared errors of both values and the predictor."""
        outputs, value = self.networks(batch.obs)
        log_prob, entropy = self.policy.head.log_prob_and_entropy(outputs, batch.action)
        ratio = (log_prob - batch.extras["log_prob"]).exp()
        advantage = rl.standardize(batch.advantage, batch.weight)
        terms = {
            "loss/policy": -rl.clipped_surrogate(ratio, advantage, now.clip_range)
            - now.ent_coef * entropy,
            "loss/value": (value - batch.target).square(),
            "loss/novelty_value": (
                self.novelty_critic(batch.obs) - batch.extras["novelty"]
            ).square(),
            "loss/predictor": self.novelty(batch.obs),
        }
        loss = batch.mean(torch.stack(list(terms.values())).sum(0))
        return loss, {name: batch.mean(term.detach()) for name, term in terms.items()}
