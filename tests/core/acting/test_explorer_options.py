"""`explorer_from_options` makes an agent from the options of a config."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import pytest

from rlplug_core import Algorithm, Config, Context, Net, Seeds
from rlplug_core.acting.epsilon_greedy import EpsilonGreedy, NoisyGreedy, Softmax
from rlplug_core.acting.explorer import explorer_from_options
from rlplug_core.config.options import Positive, Scheduled
from rlplug_core.nets.q_networks import QNetwork
from rlplug_core.types import Spec


@dataclass(frozen=True)
class ExplorerConfig(Config):
    """Options of exploration."""

    exploration_initial_eps: float = 1.0
    exploration_final_eps: float = 0.1
    exploration_fraction: float = 0.5
    exploration_points: tuple[float, ...] = ()
    exploration_alpha: float = 0.0
    softmax_temperature: Scheduled[Positive] | None = None
    random_steps: int = 7
    eval_eps: float = 0.02


class Explorer(Algorithm[Any]):
    """Has a network of action values."""

    noisy: Any = None

    def build(self) -> None:
        self.q_network = QNetwork(self.spec, Net(hidden=(4,)), noisy=self.noisy)


def agent(noisy: Any = None, rank: int = 0, final_eps: float | None = None, **options: Any) -> Any:
    """Make the agent of actor `rank` of 3."""
    cls: Any = type("Explorer", (Explorer,), {"noisy": noisy})
    spec = Spec(spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2), 1, "id")
    learner = cls(spec, ExplorerConfig(**options), Context(Seeds(1)))
    return explorer_from_options(learner, learner.q_network, rank, 3, final_eps)


def test_epsilon_follows_the_options() -> None:
    found = agent()
    assert type(found) is EpsilonGreedy
    assert [found.epsilon(progress) for progress in (0.0, 0.25, 0.5, 1.0)] == pytest.approx([1.0, 0.55, 0.1, 0.1])
    assert (found.warmup, found.evaluation) == (7, 0.02)


def test_worker_can_have_its_own_final_epsilon() -> None:
    assert agent(final_eps=0.3).epsilon(1.0) == pytest.approx(0.3)


def test_actors_explore_with_different_epsilons() -> None:
    assert agent(rank=2, exploration_alpha=1.0).epsilon(1.0) == pytest.approx(0.1**2)


def test_softmax_and_noise_replace_epsilon() -> None:
    assert isinstance(agent(softmax_temperature=0.5), Softmax)
    assert isinstance(agent(noisy="factorized"), NoisyGreedy)
