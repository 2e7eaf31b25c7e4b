"""ACER for continuous actions (Wang et al., 2017, arXiv:1611.01224, section 5): a stochastic dueling network."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from rlplug_algos.acer import ACER, ACERConfig
from rlplug_core.accelerate.forward import forward
from rlplug_core.batches import Rollout, Samples, to_tensors
from rlplug_core.config import Count, Positive
from rlplug_core.corrections import retrace
from rlplug_core.errors import UsageError
from rlplug_core.natural import within
from rlplug_core.nets.encoders import MLP, encoder, linear
from rlplug_core.nets.heads import Gaussian
from rlplug_core.nets.modules import Critic
from rlplug_core.nets.net import Net
from rlplug_core.types import tree_map


@dataclass(frozen=True)
class ContinuousACERConfig(ACERConfig):
    """Options of ACER for continuous actions."""

    truncate: Positive = 5.0  # where importance weights are cut; what is cut off is corrected by a drawn action
    draws: Count = 5  # actions over which advantages are centred


class Dueling(nn.Module):
    """A(x, a) less its mean over drawn actions: with V(x) the stochastic dueling network's action value (eq. 13)."""

    def __init__(self, trunk: tuple[nn.Module, int], dims: int, net: Net) -> None:
        super().__init__()
        self.encoder, features = trunk
        self.hidden = MLP(features + dims, net)
        self.output = linear(self.hidden.features, 1, 1.0, net)

    def forward(self, inputs: dict[str, Any]) -> Tensor:
        """[B] for `obs`, `action` [B, d] and `others` [B, n, d]."""
        features, others = self.encoder(inputs["obs"]), inputs["others"]
        actions = torch.cat([inputs["action"].reshape(len(others), 1, -1), others], 1)
        wide = features.unsqueeze(1).expand(-1, actions.shape[1], -1)
        values = self.output(self.hidden(torch.cat([wide, actions], -1).flatten(0, 1))).view(actions.shape[:2])
        centred: Tensor = values[:, 0] - values[:, 1:].mean(1)
        return centred


class ContinuousACER(ACER):
    """Trust region, replay and Retrace of ACER; the bias is corrected at one drawn action instead of over all."""

    Config = ContinuousACERConfig
    actions: ClassVar[tuple[str, ...]] = ("Box",)
    config: ContinuousACERConfig

    def critics(self) -> list[nn.Module]:
        assert isinstance(self.policy.head, Gaussian)
        if self.config.net.squash:
            raise UsageError("acer-continuous has the slopes of a Gaussian without a tanh; leave net.squash at false")
        self.head, trunk = self.policy.head, encoder(self.spec.obs, self.config.net)
        self.critic = Critic(self.spec, self.config.net, trunk).to(self.device)
        self.dueling = Dueling(trunk, self.head.dims, self.config.net).to(self.device)
        self.host_values, self.host_dueling = forward(self.critic, self.acting), forward(self.dueling, "torch")
        return [self.critic, self.dueling]

    def samples(self, batch: Rollout) -> Samples:
        """Rows with Retrace targets; the advantage is that of returns that no weight cuts (Q^opc, section 5.2)."""
        c, head, count = self.config, self.head, batch.reward.size
        value, successor = batch.values(self.host_values)
        obs = tree_map(lambda array: array[:-1].reshape(count, *array.shape[2:]), batch.obs)
        action = batch.action.reshape(count, -1)
        outputs, then = self.host_policy(obs), batch.extras["outputs"].reshape(count, -1)
        noise = head.noise(self.generator, (c.draws + 1, count))
        drawn = head.sample(outputs, noise).reshape(c.draws + 1, count, head.dims).swapaxes(0, 1)
        inputs = {"obs": obs, "action": action, "others": np.ascontiguousarray(drawn[:, 1:])}
        chosen = value + self.host_dueling(inputs).reshape(value.shape)
        ratio = np.exp(head.host_log_prob(outputs, action) - head.host_log_prob(then, action)).reshape(value.shape)
        target = retrace(batch, value, successor, chosen, ratio ** (1 / head.dims), c.gamma)
        uncut = retrace(batch, value, successor, chosen, np.ones_like(ratio), c.gamma)
        samples = batch.samples(uncut - value, target, self.device)
        extras = to_tensors({"drawn": np.ascontiguousarray(drawn[:, 0]), "others": inputs["others"]}, self.device)
        return replace(samples, share=None, extras={**samples.extras, **extras})

    def loss(self, batch: Samples) -> tuple[Tensor, dict[str, Tensor]]:
        """Section 5.2: policy gradient within the trust region, squared errors of action and state values, entropy."""
        c, head = self.config, self.head
        outputs, state = self.policy(batch.obs), self.critic(batch.obs)
        inputs = {"obs": batch.obs, "action": batch.action, "others": batch.extras["others"]}
        q = state + self.dueling(inputs)
        with torch.no_grad():
            centred = self.dueling({**inputs, "action": batch.extras["drawn"]})
            weight = (head.log_prob(outputs, batch.action) - head.log_prob(batch.extras["outputs"], batch.action)).exp()
            state_target = state + weight.clamp(max=1) * (batch.target - q)
        ascent = self.push(batch, outputs.detach(), weight, centred)
        policy, entropy = -(ascent * outputs).sum(-1), head.entropy(outputs)
        value = (q - batch.target).square() + (state - state_target).square()
        loss = batch.mean(policy + c.value * value - c.entropy * entropy)
        metrics = {"loss/policy": policy, "loss/value": value, "loss/entropy": entropy}
        return loss, {name: batch.mean(term.detach()) for name, term in metrics.items()}

    def push(self, batch: Samples, outputs: Tensor, weight: Tensor, centred: Tensor) -> Tensor:
        """Where means and log deviations [B, 2 d] shall go, within the region around the average policy."""
        c, drawn = self.config, batch.extras["drawn"]
        then = self.head.log_prob(batch.extras["outputs"], drawn)
        excess = (1 - c.truncate * (then - self.head.log_prob(outputs, drawn)).exp()).clamp(min=0)
        action = batch.action.reshape(drawn.shape)
        gain = (weight.clamp(max=c.truncate) * batch.advantage).unsqueeze(1) * score(outputs, action)
        gain += (excess * centred).unsqueeze(1) * score(outputs, drawn)
        with torch.no_grad():
            return within(gain, slope(self.average(batch.obs), outputs), c.region)


def score(outputs: Tensor, action: Tensor) -> Tensor:
    """The gradient [B, 2 d] of a Gaussian's log-probability in its mean and log deviation."""
    mean, log_std = outputs.chunk(2, -1)
    scaled = (action - mean) * (-log_std).exp()
    return torch.cat([scaled * (-log_std).exp(), scaled.square() - 1], -1)


def slope(average: Tensor, outputs: Tensor) -> Tensor:
    """The gradient [B, 2 d] of KL(average || outputs), both diagonal Gaussians, in `outputs`."""
    (mean, log_std), (average_mean, average_log_std) = outputs.chunk(2, -1), average.chunk(2, -1)
    precision, apart = (-2 * log_std).exp(), mean - average_mean
    return torch.cat([apart * precision, 1 - ((2 * average_log_std).exp() + apart.square()) * precision], -1)
