"""`Algorithm.optimizer` and `replay_from_options` read the options of a config by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import pytest
from torch import nn

from rlplug_core import Algorithm, Config, Context, OptimizerOptions, Seeds
from rlplug_core.batches import Rollout
from rlplug_core.buffers.make import PriorityOptions, replay_from_options
from rlplug_core.buffers.prioritized import PrioritizedReplay
from rlplug_core.buffers.replay import ReplayBuffer
from rlplug_core.config.options import Positive, Scheduled
from rlplug_core.config.schedules import constant
from rlplug_core.errors import PluginError
from rlplug_core.learning.optimizer import Optimizer
from rlplug_core.learning.update_rules import SGD, Adam, RMSProp
from rlplug_core.types import Spec

BOX = spaces.Box(-1, 1, (3,), np.float32)


@dataclass(frozen=True)
class TrainedConfig(Config):
    """Options of a learner with two learning rates."""

    learning_rate: Scheduled[Positive] = 1e-2
    critic_learning_rate: Scheduled[Positive] = 3e-2
    anneal_lr: bool = True
    max_grad_norm: Scheduled[Positive] | None = 0.5
    optimizer: str = "rmsprop"
    optimizer_kwargs: OptimizerOptions = OptimizerOptions(alpha=0.9)


@dataclass(frozen=True)
class BareConfig(Config):
    """Only one option of optimizers."""

    learning_rate: Scheduled[Positive] = 1e-2


class Trained(Algorithm[Rollout]):
    """Makes an optimizer with `arguments`."""

    arguments: dict[str, Any] = {}

    def build(self) -> None:
        self.result = self.optimizer("layer", [nn.Linear(2, 1)], **self.arguments)


def make_optimizer(config: Config, **arguments: Any) -> Optimizer:
    cls = type("Trained", (Trained,), {"arguments": arguments})
    learner: Any = cls(Spec(BOX, BOX, 1, "id"), config, Context(Seeds(1)))
    optimizer: Optimizer = learner.result
    return optimizer


def test_optimizer_uses_options_of_the_config() -> None:
    optimizer = make_optimizer(TrainedConfig())
    assert isinstance(optimizer.rule, RMSProp)
    assert optimizer.rule.alpha == 0.9
    assert [optimizer.learning_rate(progress) for progress in (0.0, 0.5)] == [1e-2, 5e-3]
    assert optimizer.clip == 0.5


def test_optimizer_uses_the_named_learning_rate() -> None:
    optimizer = make_optimizer(TrainedConfig(anneal_lr=False), learning_rate="critic_learning_rate")
    assert [optimizer.learning_rate(progress) for progress in (0.0, 0.5)] == [3e-2, 3e-2]


def test_max_grad_norm_none_disables_clipping() -> None:
    assert make_optimizer(TrainedConfig(max_grad_norm=None)).clip is None


def test_defaults_replace_options_that_are_not_set() -> None:
    optimizer = make_optimizer(TrainedConfig(), defaults={"eps": 1e-8, "alpha": 0.5})
    assert isinstance(optimizer.rule, RMSProp)
    assert (optimizer.rule.eps, optimizer.rule.alpha) == (1e-8, 0.9)


def test_optimizer_has_defaults_for_missing_options() -> None:
    optimizer = make_optimizer(BareConfig())
    assert isinstance(optimizer.rule, Adam)
    assert optimizer.clip is None
    assert optimizer.learning_rate(0.5) == 1e-2


def test_learning_rate_as_a_number_or_function_ignores_options() -> None:
    """Classes for versions that did not read options by name pass all arguments."""
    for rate in (1.0, constant(1.0)):
        optimizer = make_optimizer(TrainedConfig(), learning_rate=rate)
        assert isinstance(optimizer.rule, Adam)
        assert (optimizer.clip, optimizer.learning_rate(0.5)) == (None, 1.0)


def test_arguments_override_options() -> None:
    optimizer = make_optimizer(TrainedConfig(), rule=SGD(), max_grad_norm=7.0)
    assert isinstance(optimizer.rule, SGD)
    assert optimizer.clip == 7.0


def test_unknown_name_of_a_learning_rate_raises() -> None:
    with pytest.raises(PluginError, match="Trained has no option 'learning_rates' to follow a schedule; did you mean"):
        make_optimizer(TrainedConfig(), learning_rate="learning_rates")


@dataclass(frozen=True)
class ReplayConfig(Config):
    """The required options of a replay buffer."""

    buffer_size: int = 50
    buffer_storage: Any = "memory"
    batch_size: int = 4
    train_freq: int = 2
    gradient_steps: int = 3
    learning_starts: int = 5
    gamma: Scheduled[float] = 0.9


@dataclass(frozen=True)
class PrioritizedConfig(ReplayConfig):
    """Also options of prioritized replay."""

    n_step: int = 3
    priority: PriorityOptions = PriorityOptions(alpha=0.6)


class OffPolicy(Algorithm[Any]):
    """Has no networks."""

    def build(self) -> None:
        pass


def replay(config: Config) -> ReplayBuffer:
    return replay_from_options(OffPolicy(Spec(BOX, BOX, 1, "id"), config, Context(Seeds(1))))


def test_replay_uses_options_of_the_config() -> None:
    plain = replay(ReplayConfig())
    assert type(plain) is ReplayBuffer
    assert (plain.pace.batch_size, plain.pace.train_freq, plain.pace.gradient_steps) == (4, 2, 3)
    assert (plain.pace.learning_starts, plain.n_step) == (5, 1)
    prioritized = replay(PrioritizedConfig())
    assert isinstance(prioritized, PrioritizedReplay)
    assert (prioritized.priority.alpha, prioritized.n_step) == (0.6, 3)
