"""Losses of learners and their gradients; noise of off-policy learners is in the extras of the batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from rlplug_core.batches import Transitions

#: Class names, and the noise for the losses of critics and of policies.
NOISE = {
    "DDPG": (None, None), "TD3": ("smoothing", None), "SAC": ("next_noise", "noise"), "TQC": ("next_noise", "noise"),
    "CrossQ": ("next_noise", "noise"), "SACDiscrete": (None, None),
}  # fmt: skip
TARGETS = (("target_policy", "policy"), ("target_critics", "critics"))


def draws(learner: Any, batch: Transitions) -> dict[str, Tensor]:
    """Draw standard normal numbers for all noise of the learner's losses."""
    names = [name for name in NOISE[type(learner).__name__] if name is not None]
    return {
        name: torch.randn(len(batch.weight), batch.action.reshape(len(batch.weight), -1).shape[1]) for name in names
    }


def with_draws(learner: Any, batch: Transitions) -> Transitions:
    """Return the batch with noise for the learner's losses."""
    return replace(batch, share=None, extras=draws(learner, batch))


def critic_loss(learner: Any, batch: Transitions) -> Any:
    """Return the result of the learner's loss of critics."""
    name = NOISE[type(learner).__name__][0]
    return learner.critic_loss(batch, *([] if name is None else [batch.extras[name]]), learner.config)


def policy_loss(learner: Any, batch: Transitions) -> Any:
    """Return the result of the learner's loss of policies, the loss first."""
    kind = type(learner).__name__
    if kind in ("DDPG", "TD3"):
        return (learner.policy_loss(batch),)
    name = NOISE[kind][1]
    return learner.policy_loss(batch, *([] if name is None else [batch.extras[name]]), learner.config)


def gradients(learner: Any, loss: Tensor) -> list[Tensor]:
    """Return the gradients of the parameters of the learner's first optimizer."""
    return list(torch.autograd.grad(loss, learner.optimizers[0].parameters))


def gradients_of(loss: Tensor, module: nn.Module) -> list[Tensor]:
    """Return the gradients of the parameters of a module; the graph is kept."""
    return list(torch.autograd.grad(loss, list(module.parameters()), retain_graph=True, allow_unused=True))


def scatter(learner: Any) -> None:
    """Randomize weights, so that everything matters and targets differ from their networks."""
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))


def huber(error: Tensor) -> Tensor:
    return 0.5 * error**2 if abs(error) < 1 else abs(error) - 0.5


def pairs(learner: Any) -> list[tuple[nn.Module, nn.Module]]:
    """Return target networks, each with the network that it follows."""
    return [
        (getattr(learner, old), getattr(learner, new)) for old, new in TARGETS if old in dict(learner.named_children())
    ]


def q_draws(learner: Any, batch: Transitions) -> dict[str, Tensor]:
    """Return the draws of an update for a loss of action values: noise, and fractions for IQN."""
    noise = learner.q_network.noise(learner.generator, 2 + learner.config.double)
    samples = {} if noise[0] is None else {"noise": torch.stack(noise)}
    if type(learner).__name__ == "IQN":
        c = learner.config
        for name, count in (("shares", c.n_quantiles), ("target_shares", c.n_target_quantiles)):
            samples[name] = torch.rand(len(batch.weight), count)
    return samples


def q_noise(learner: Any, batch: Transitions) -> Any:
    """Return the noise of a batch, one for each use of a network."""
    return list(batch.extras["noise"]) if "noise" in batch.extras else [None] * (2 + learner.config.double)


def q_loss(learner: Any, batch: Transitions) -> Any:
    """Return the loss, its metrics and the TD errors, with the draws of `q_draws` in the batch."""
    return learner.loss(*q_arguments(learner, batch))


def q_arguments(learner: Any, batch: Transitions) -> list[Any]:
    """Return the arguments of a loss of action values."""
    given: list[Any] = [batch, q_noise(learner, batch)]
    if type(learner).__name__ == "IQN":
        given.append((batch.extras["shares"], batch.extras["target_shares"]))
    return [*given, learner.config]


def q_losses(learner: Any, batch: Transitions) -> tuple[Tensor, Tensor]:
    """Return the loss [B] of each transition by itself, with weight 1, and the TD errors [B]."""
    each = []
    for i in range(len(batch.weight)):
        one = batch.map(lambda tensor, i=i: tensor[i : i + 1] if len(tensor) == len(batch.weight) else tensor)
        if "noise" in batch.extras:
            one.extras["noise"] = batch.extras["noise"]
        one.weight = torch.ones(1)
        one.counts = torch.ones(1)
        each.append(q_loss(learner, one)[0])
    return torch.stack(each), q_loss(learner, batch)[2]
