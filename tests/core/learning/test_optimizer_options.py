"""`Algorithm.optimizer` reads options by name; with a number or a function it reads none."""

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
class SteppedConfig(Config):
    """Options of a learner with two learning rates."""

    learning_rate: Scheduled[Positive] = 1e-2
    critic_learning_rate: Scheduled[Positive] = 3e-2
    anneal_lr: bool = True
    max_grad_norm: Scheduled[Positive] | None = 0.5
    optimizer: str = "rmsprop"
    optimizer_kwargs: OptimizerOptions = OptimizerOptions(alpha=0.9)


@dataclass(frozen=True)
class BareConfig(Config):
    """One option and no other that an optimizer knows."""

    learning_rate: Scheduled[Positive] = 1e-2


class Stepped(Algorithm[Rollout]):
    """Makes one optimizer with the arguments it is given."""

    arguments: dict[str, Any] = {}

    def build(self) -> None:
        self.made = self.optimizer("layer", [nn.Linear(2, 1)], **self.arguments)


def optimizer(config: Config, **arguments: Any) -> Optimizer:
    """An optimizer made with some arguments."""
    cls = type("Stepped", (Stepped,), {"arguments": arguments})
    learner: Any = cls(Spec(BOX, BOX, 1, "id"), config, Context(Seeds(1)))
    made: Optimizer = learner.made
    return made


def test_an_optimizer_follows_the_options_of_its_config() -> None:
    made = optimizer(SteppedConfig())
    assert isinstance(made.rule, RMSProp)
    assert made.rule.alpha == 0.9
    assert [made.learning_rate(progress) for progress in (0.0, 0.5)] == [1e-2, 5e-3]
    assert made.clip == 0.5


def test_another_learning_rate_goes_by_its_name() -> None:
    made = optimizer(SteppedConfig(anneal_lr=False), learning_rate="critic_learning_rate")
    assert [made.learning_rate(progress) for progress in (0.0, 0.5)] == [3e-2, 3e-2]


def test_none_leaves_gradients_as_they_are() -> None:
    assert optimizer(SteppedConfig(max_grad_norm=None)).clip is None


def test_an_algorithm_has_defaults_of_its_own_for_options_that_are_not_set() -> None:
    made = optimizer(SteppedConfig(), defaults={"eps": 1e-8, "alpha": 0.5})
    assert isinstance(made.rule, RMSProp)
    assert (made.rule.eps, made.rule.alpha) == (1e-8, 0.9)


def test_options_that_a_config_does_not_have_do_not_apply() -> None:
    made = optimizer(BareConfig())
    assert isinstance(made.rule, Adam)
    assert made.clip is None
    assert made.learning_rate(0.5) == 1e-2


def test_a_number_or_a_function_leaves_all_options_unread() -> None:
    """Classes written before options were read by name pass everything."""
    for rate in (1.0, constant(1.0)):
        made = optimizer(SteppedConfig(), learning_rate=rate)
        assert isinstance(made.rule, Adam)
        assert (made.clip, made.learning_rate(0.5)) == (None, 1.0)


def test_arguments_win_over_options() -> None:
    made = optimizer(SteppedConfig(), rule=SGD(), max_grad_norm=7.0)
    assert isinstance(made.rule, SGD)
    assert made.clip == 7.0


def test_a_name_that_is_no_option_is_an_error() -> None:
    with pytest.raises(PluginError, match="Stepped has no option 'learning_rates' to follow a schedule; did you mean"):
        optimizer(SteppedConfig(), learning_rate="learning_rates")


@dataclass(frozen=True)
class ReplayConfig(Config):
    """The options that a replay buffer needs."""

    buffer_size: int = 50
    buffer_storage: Any = "memory"
    batch_size: int = 4
    train_freq: int = 2
    gradient_steps: int = 3
    learning_starts: int = 5
    gamma: Scheduled[float] = 0.9


@dataclass(frozen=True)
class PreferringConfig(ReplayConfig):
    """Those of prioritized replay too."""

    n_step: int = 3
    priority: PriorityOptions = PriorityOptions(alpha=0.6)


class Replaying(Algorithm[Any]):
    """Has no networks."""

    def build(self) -> None:
        pass


def replay(config: Config) -> ReplayBuffer:
    return replay_from_options(Replaying(Spec(BOX, BOX, 1, "id"), config, Context(Seeds(1))))


def test_a_replay_buffer_follows_the_options_of_its_config() -> None:
    plain = replay(ReplayConfig())
    assert type(plain) is ReplayBuffer
    assert (plain.pace.batch_size, plain.pace.train_freq, plain.pace.gradient_steps) == (4, 2, 3)
    assert (plain.pace.learning_starts, plain.n_step) == (5, 1)
    preferring = replay(PreferringConfig())
    assert isinstance(preferring, PrioritizedReplay)
    assert (preferring.priority.alpha, preferring.n_step) == (0.6, 3)
