"""DQN that explores by noise on its weights (Fortunato et al., 2018, arXiv:1706.10295)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core import Algorithm, Config
from rlplug_core.algorithm import target_network
from rlplug_core.batches import Transitions, to_tensors
from rlplug_core.buffers.replay import Pace, ReplayBuffer
from rlplug_core.clock import Clock, due
from rlplug_core.config import Count, Fraction, Positive
from rlplug_core.nets.encoders import encoder
from rlplug_core.nets.heads import masked
from rlplug_core.nets.modules import actions_of
from rlplug_core.nets.net import Net
from rlplug_core.schedules import constant
from rlplug_core.seeds import Seeds
from rlplug_core.types import Act, Array, Carry, Obs, Result, Spec, State


@dataclass(frozen=True)
class NoisyDQNConfig(Config):
    """Options of noisy DQN."""

    capacity: Count = 10_000  # transitions kept for replay
    batch: Count = 32  # transitions per gradient step
    every: Count = 4  # env steps per gradient step
    start: Count = 500  # env steps before the first gradient step
    gamma: Fraction = 0.99  # discount per step
    lr: Positive = 5e-4  # step size of Adam
    sigma: Positive = 0.5  # noise at the beginning
    target_every: Count = 100  # gradient steps between copies to the target network
    net: Net = Net(hidden=(64,), activation="relu")


class NoisyQ(nn.Module):
    """Action values whose last layer is noisy; its noise [inputs + outputs] is an argument."""

    def __init__(self, spec: Spec, net: Net, sigma: float) -> None:
        super().__init__()
        self.encoder, self.inputs = encoder(spec.obs, net)
        self.outputs = actions_of(spec.action)
        bound = self.inputs**-0.5
        self.weight = nn.Parameter(torch.empty(self.outputs, self.inputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(self.outputs).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((self.outputs, self.inputs), sigma * bound))
        self.bias_sigma = nn.Parameter(torch.full((self.outputs,), sigma * bound))

    def forward(self, obs: Obs, noise: Tensor | None = None) -> Tensor:
        weight, bias = self.weight, self.bias
        if noise is not None:
            scaled = noise.sign() * noise.abs().sqrt()
            into, out = scaled[: self.inputs], scaled[self.inputs :]
            weight = weight + self.weight_sigma * out[:, None] * into
            bias = bias + self.bias_sigma * out
        return masked(nn.functional.linear(self.encoder(obs), weight, bias), obs)

    def draw(self, generator: np.random.Generator) -> Array:
        return generator.standard_normal(self.inputs + self.outputs, dtype=np.float32)


class NoisyAgent:
    """Greedy under noise that it draws anew at every step; none when it does not explore."""

    def __init__(self, network: NoisyQ, seeds: Seeds) -> None:
        self.network, self.generator = network, seeds.generator()

    def weights(self) -> State:
        return dict(self.network.state_dict())

    def initial(self, rows: int) -> Carry:
        return None

    def act(self, obs: Obs, first: Array, carry: Carry, clock: Clock, explore: bool = True) -> Act:
        noise = torch.from_numpy(self.network.draw(self.generator)) if explore else None
        with torch.inference_mode():
            values = self.network(to_tensors(obs, torch.device("cpu")), noise)
        return Act(values.argmax(1).numpy())

    def state_dict(self) -> State:
        return {"generator": self.generator.bit_generator.state}

    def load_state_dict(self, state: State) -> None:
        self.generator.bit_generator.state = state["generator"]


class NoisyDQN(Algorithm[Transitions]):
    """Q-learning; `update` draws, `loss` is pure."""

    Config = NoisyDQNConfig
    runners: ClassVar[tuple[str, ...]] = ("sync",)
    actions: ClassVar[tuple[str, ...]] = ("Discrete",)
    config: NoisyDQNConfig

    def build(self) -> None:
        c = self.config
        self.online = NoisyQ(self.spec, c.net, c.sigma)
        self.target = target_network(self.online)
        self.optim = self.optimiser([self.online], constant(c.lr), 10.0)

    def agent(self, rank: int = 0, ranks: int = 1) -> NoisyAgent:
        return NoisyAgent(self.online, self.agent_seeds(rank))

    def buffer(self) -> ReplayBuffer:
        c = self.config
        pace = Pace(c.batch, c.every, 1, c.start)
        return ReplayBuffer(c.capacity, pace, 1, c.gamma, self.seeds.child("buffer"), self.device)

    def update(self, batch: Transitions, clock: Clock) -> Result:
        noise, target_noise = (torch.from_numpy(self.online.draw(self.generator)) for _ in range(2))
        loss, metrics = self.loss((batch, noise, target_noise))
        metrics["loss/gradient_norm"] = self.optim.minimise(loss, clock)
        if due(clock.updates, clock.updates + 1, self.config.target_every):
            self.target.load_state_dict(self.online.state_dict())
        return Result(metrics)

    def loss(self, drawn: tuple[Transitions, Tensor, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        batch, noise, target_noise = drawn
        value = self.online(batch.obs, noise).gather(1, batch.action.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            target = batch.reward + batch.discount * self.target(batch.next_obs, target_noise).amax(1)
        loss = batch.mean(nn.functional.smooth_l1_loss(value, target, reduction="none"))
        return loss, {"loss/value": loss.detach(), "loss/sigma": self.online.weight_sigma.detach().abs().mean()}
