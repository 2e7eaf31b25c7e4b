"""Actor-critic with experience replay (Wang et al., 2017, arXiv:1611.01224), for Discrete actions: whole rollouts are
replayed, with what the policy was when they were made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core import Algorithm, Config
from rlplug_core.acting.policy_agent import PolicyAgent
from rlplug_core.batches import Batch, Rollout, to_tensors
from rlplug_core.buffers.trajectories import TrajectoryReplay
from rlplug_core.clock import Clock
from rlplug_core.config.options import Count, Fraction, NonNegative, Positive
from rlplug_core.config.schedules import constant
from rlplug_core.learning.corrections import retrace
from rlplug_core.learning.natural import inside_trust_region
from rlplug_core.learning.targets import target_network
from rlplug_core.nets.net import Net
from rlplug_core.nets.policies import PolicyNetwork
from rlplug_core.nets.q_networks import QNetwork
from rlplug_core.types import Act, Array, Obs, RecurrentState, Result, tree_map

TINY = 1e-8


@dataclass(frozen=True)
class ACERConfig(Config):
    """Options of ACER."""

    n_steps: Count = 8  # rollout length per environment row
    kept: Count = 200  # rollouts kept for replay
    replay_ratio: NonNegative = 2.0  # replayed rollouts per new one, on average
    gamma: Fraction = 0.99  # discount per step
    learning_rate: Positive = 2e-3  # step size of Adam
    max_importance_weight: Positive = 10.0  # where importance weights are cut
    trust_region_delta: Positive = 1.0  # how far an update may move from the average policy
    average_policy_decay: Fraction = 0.99  # share of the average policy that stays per update
    ent_coef: NonNegative = 0.005  # weight of the entropy bonus
    net: Net = Net(hidden=(64,))


class BehaviorAgent(PolicyAgent):
    """Sends along the probabilities [N, A] with which it chose."""

    use_tensors = None  # type: ignore[assignment]  # `act` computes in NumPy

    def act(
        self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock, explore: bool = True
    ) -> Act:
        outputs = self.forward(obs)
        if not explore or self.draws is None:
            return Act(self.head.mode(outputs))
        odds = np.exp(outputs - outputs.max(-1, keepdims=True))
        action = self.head.sample(outputs, self.draws.next())
        return Act(action, None, {"behavior": (odds / odds.sum(-1, keepdims=True)).astype(np.float32)})


@dataclass(slots=True)
class Replayed(Batch):
    """Rows [B] of a rollout: what was done, under which probabilities [B, A], and the Retrace target of its value."""

    obs: Obs
    action: Tensor
    behavior: Tensor
    target: Tensor


class ACER(Algorithm[Rollout]):
    """Truncated importance weights with bias correction, Retrace targets, a trust region around an average policy."""

    Config = ACERConfig
    runners: ClassVar[tuple[str, ...]] = ("sync",)
    actions: ClassVar[tuple[str, ...]] = ("Discrete",)
    config: ACERConfig

    def build(self) -> None:
        c = self.config
        self.policy, self.values = PolicyNetwork(self.spec, c.net), QNetwork(self.spec, c.net)
        self.average = target_network(self.policy)
        self.optim = self.optimizer(
            "actor_critic", [self.policy, self.values], learning_rate=constant(c.learning_rate), max_grad_norm=0.5
        )

    def agent(self, rank: int = 0, ranks: int = 1) -> BehaviorAgent:
        return BehaviorAgent(self.policy, self.agent_seeds(rank), self.inference_backend)

    def buffer(self) -> TrajectoryReplay:
        c = self.config
        return TrajectoryReplay(c.n_steps, c.kept, c.replay_ratio, 1, self.seeds.child("buffer"))

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        loss, metrics = self.loss(self.replayed(batch))
        metrics["loss/gradient_norm"] = self.optim.minimize(loss, clock)
        with torch.no_grad():
            for old, new in zip(self.average.parameters(), self.policy.parameters(), strict=True):
                old.lerp_(new, 1 - self.config.average_policy_decay)
        return Result(metrics)

    def replayed(self, batch: Rollout) -> Replayed:
        """The rollout's rows with their Retrace targets."""
        steps, num_envs = batch.reward.shape

        def flat(tree: Obs) -> Obs:
            merged = tree_map(lambda array: array[:steps].reshape(steps * num_envs, *array.shape[2:]), tree)
            return to_tensors(merged, self.device)

        obs, action, behavior = flat(batch.obs), flat(batch.action), flat(batch.extras["behavior"])
        with torch.no_grad():
            value = self.values(obs).gather(1, action.unsqueeze(1)).squeeze(1)
            odds = self.policy(obs).softmax(-1).gather(1, action.unsqueeze(1)).squeeze(1)
            ratio = odds / behavior.gather(1, action.unsqueeze(1)).squeeze(1).clamp(min=TINY)
        state, successor = batch.values(self.state_value)
        chosen, ratios = (tensor.cpu().numpy().reshape(steps, num_envs) for tensor in (value, ratio))
        target = retrace(batch, state, successor, chosen, ratios, self.config.gamma)
        return Replayed(flat(batch.weight), None, obs, action, behavior, flat(target))

    def state_value(self, obs: Obs) -> Array:
        """V = sum over actions of pi Q, [B]."""
        with torch.no_grad():
            seen = to_tensors(obs, self.device)
            value: Array = (self.policy(seen).softmax(-1) * self.values(seen)).sum(-1).cpu().numpy()
        return value

    def loss(self, batch: Replayed) -> tuple[Tensor, dict[str, Tensor]]:
        """Wang et al. (2017), eq. 9 to 12."""
        c = self.config
        log_odds = self.policy(batch.obs).log_softmax(-1)
        odds, values = log_odds.exp(), self.values(batch.obs)
        q = values.gather(1, batch.action.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            baseline = (odds * values).sum(-1)
            ratio = odds / batch.behavior.clamp(min=TINY)
            taken = nn.functional.one_hot(batch.action, odds.shape[1])
            gain = ratio.clamp(max=c.max_importance_weight) * taken * (batch.target - baseline).unsqueeze(1)
            gain += (
                (1 - c.max_importance_weight / ratio.clamp(min=TINY)).clamp(min=0)
                * odds
                * (values - baseline.unsqueeze(1))
            )
            ascent = gain / odds.clamp(min=TINY)  # the gradient in terms of the probabilities
            away = -self.average(batch.obs).softmax(-1) / odds.clamp(min=TINY)
            ascent = inside_trust_region(ascent, away, c.trust_region_delta)
        policy = -(ascent * odds).sum(-1)
        entropy = -(odds * log_odds).sum(-1)
        value = (q - batch.target).square()
        loss = batch.mean(policy + 0.5 * value - c.ent_coef * entropy)
        metrics = {"loss/policy": policy, "loss/value": value, "loss/entropy": entropy}
        return loss, {name: batch.mean(term.detach()) for name, term in metrics.items()}
