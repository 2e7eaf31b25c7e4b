"""SARSA with a network (Rummery and Niranjan, 1994), without target network: learns from the action it takes next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from rlplug_core import Algorithm, Config
from rlplug_core.acting.epsilon_greedy import EpsilonGreedy
from rlplug_core.batches import Transitions, to_tensors
from rlplug_core.clock import Clock
from rlplug_core.config.options import Fraction, Positive
from rlplug_core.config.schedules import constant
from rlplug_core.nets.net import Net
from rlplug_core.nets.q_networks import QNetwork
from rlplug_core.types import Array, Result, State, Step, tree_map


@dataclass(frozen=True)
class VSarsaConfig(Config):
    """Options of VSarsa."""

    gamma: Fraction = 0.99  # discount per step
    learning_rate: Positive = 1e-3  # step size of Adam
    epsilon: Fraction = 0.1  # chance of a random action
    max_grad_norm: Positive = 0.5  # largest gradient norm
    net: Net = Net(hidden=(64,))


class PairBuffer:
    """Holds each step back until the next one says which action followed.

    Where an episode ended nothing was chosen on the successor; `extras["next_action"]` is -1 there.
    """

    def __init__(self, gamma: float, device: torch.device) -> None:
        self.gamma, self.device = gamma, device
        self.held: State = {}
        self.action: Array | None = None

    def add(self, step: Step, source: int = 0) -> None:
        self.following = {} if not self.held else {**self.held, "next_action": self.next_action(step)}
        ended = step.terminated | step.truncated
        kept = {
            "obs": step.obs, "action": step.action, "reward": step.reward, "next_obs": step.next_obs,
            "discount": (self.gamma * ~step.terminated).astype(np.float32), "ended": ended,
            "weight": step.valid.astype(np.float32),
        }  # fmt: skip
        self.held = tree_map(lambda array: np.array(array), kept)

    def next_action(self, step: Step) -> Array:
        return np.where(self.held["ended"] | ~step.valid, -1, step.action)

    def batches(self, clock: Clock) -> Iterator[Transitions]:
        due, self.following = self.following, {}
        if due:
            parts = {name: to_tensors(due[name], self.device) for name in ("obs", "action", "reward", "discount")}
            weight, following = torch.from_numpy(due["weight"]), to_tensors(due["next_obs"], self.device)
            extras = {"next_action": torch.from_numpy(due["next_action"])}
            index = torch.arange(len(weight))
            yield Transitions(weight, None, **parts, next_obs=following, index=index, extras=extras)

    def feedback(self, batch: Transitions, result: Result) -> None:
        """It keeps no priorities."""

    following: State = {}

    def state_dict(self) -> State:
        return {"held": self.held, "following": self.following}

    def load_state_dict(self, state: State) -> None:
        self.held, self.following = state["held"], state["following"]


class VSarsa(Algorithm[Transitions]):
    """Q(s, a) towards r + γ Q(s', a') for the action a' that was taken; where none was, for what ε-greedy expects."""

    Config = VSarsaConfig
    runners: ClassVar[tuple[str, ...]] = ("sync", "async")
    actions: ClassVar[tuple[str, ...]] = ("Discrete",)
    config: VSarsaConfig

    def build(self) -> None:
        c = self.config
        self.values = QNetwork(self.spec, c.net)
        self.optim = self.optimizer(
            "values", [self.values], learning_rate=constant(c.learning_rate), max_grad_norm=c.max_grad_norm
        )

    def agent(self, rank: int = 0, ranks: int = 1) -> EpsilonGreedy:
        return EpsilonGreedy(self.values, constant(self.config.epsilon), self.agent_seeds(rank), self.inference_backend)

    def buffer(self) -> PairBuffer:
        return PairBuffer(self.config.gamma, self.device)

    def learn(self, batch: Transitions, now: Any, clock: Clock) -> Result:
        loss, metrics = self.loss(batch)
        metrics["loss/gradient_norm"] = self.optim.minimize(loss, clock)
        return Result(metrics)

    def loss(self, batch: Transitions) -> tuple[Tensor, dict[str, Tensor]]:
        value = self.values(batch.obs).gather(1, batch.action.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            following, chosen = self.values(batch.next_obs), batch.extras["next_action"]
            taken = following.gather(1, chosen.clamp(min=0).unsqueeze(1)).squeeze(1)
            target = batch.reward + batch.discount * torch.where(chosen < 0, following.amax(1), taken)
        loss = batch.mean((value - target).square())
        return loss, {"loss/value": loss.detach()}
