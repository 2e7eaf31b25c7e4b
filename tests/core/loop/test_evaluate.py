"""Evaluation plays one greedy episode per row, with its own environment and random numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlplug_core.clock import Clock
from rlplug_core.context import Context
from rlplug_core.errors import PluginError
from rlplug_core.films.player import play
from rlplug_core.loop import evaluate as module
from rlplug_core.loop.best import BestEvaluation
from rlplug_core.loop.evaluate import Evaluation, evaluate
from rlplug_core.loop.info_columns import InfoColumns
from rlplug_core.seeds import Seeds, global_state
from rlplug_core.testing.envs import Chain, Masked, Truncated
from rlplug_core.types import Act, Array, State, Timestep
from tests.core.fakes import GlobalRandomness, Tiny, TinyConfig, assert_same
from tests.core.signals import Costly, cost_of


class Constant:
    """An agent with one action."""

    def __init__(self, action: int) -> None:
        self.action = action

    def weights(self) -> State:
        return {}

    def initial(self, num_envs: int) -> Any:
        return None

    def act(self, obs: Any, is_first: Array, recurrent_state: Any, clock: Clock, explore: bool = True) -> Act:
        assert not explore
        return Act(np.full(len(is_first), self.action))

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None: ...


class Uneven(Truncated):
    """Row r has episodes of r + 1 steps."""

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        reward, terminated, _ = super().move(action)
        return reward, terminated, self.state["length"] >= np.arange(self.num_envs)


def test_each_row_plays_one_episode() -> None:
    result = evaluate(Constant(1), Uneven(5), 0, Clock(1))
    assert result == Evaluation((1.0, 2.0, 3.0, 4.0, 5.0), (1, 2, 3, 4, 5))
    assert (result.mean, result.minimum, result.maximum, result.length_mean, result.episodes) == (3.0, 1.0, 5.0, 3.0, 5)
    assert result.std == pytest.approx(np.sqrt(2))


@pytest.mark.parametrize(("action", "expected"), [(0, 0.0), (1, 1.0)])
def test_known_returns(action: int, expected: float) -> None:
    result = evaluate(Constant(action), Chain(7), 3, Clock(1))
    assert set(result.returns) == {expected}
    assert set(result.lengths) == {3}


def test_unfinished_episode_counts_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_EPISODE", 4)
    result = evaluate(Constant(1), Uneven(6), 0, Clock(1))
    assert result == Evaluation((1.0, 2.0, 3.0, 4.0, 4.0, 4.0), (1, 2, 3, 4, 4, 4), cut=2)
    assert result.cut_message.startswith("2 of 6 episodes had not ended after 4 steps")
    assert not evaluate(Constant(1), Uneven(4), 0, Clock(1)).cut_message


class Success(Uneven):
    """Episodes that end are successes."""

    def step(self, action: Array) -> Timestep:
        timestep = super().step(action)
        return replace(timestep, episodes=[replace(episode, success=True) for episode in timestep.episodes])


def test_unfinished_episode_counts_as_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """If success ends episodes, those that did not end have failed."""
    monkeypatch.setattr(module, "LONGEST_EPISODE", 4)
    result = evaluate(Constant(1), Success(6), 0, Clock(1))
    assert result.successes == (True,) * 4 + (False,) * 2
    assert result.success_rate == pytest.approx(4 / 6)
    assert evaluate(Constant(1), Uneven(6), 0, Clock(1)).success_rate is None


class Longer(Success):
    """Its nth episode has n steps."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.episode = 0

    def reset(self, seed: int) -> Timestep:
        self.episode += 1
        return super().reset(seed)

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        reward, terminated, _ = super().move(action)
        return reward, terminated, self.state["length"] + 1 >= self.episode


def test_player_counts_unfinished_episodes_as_failures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LONGEST_EPISODE", 4)
    result = play(Constant(1), Longer(1), 6, 0, Clock(1), None)
    assert (result.lengths, result.cut) == ((1, 2, 3, 4, 4, 4), 2)
    assert result.successes == (True,) * 4 + (False,) * 2


@pytest.mark.parametrize(
    ("limit", "total", "steps"),
    [(500, 100, 27_000), (27_000, 100, 1_000), (0, 100, 1_000), (0, 5_000, 5_000), (0, 10**6, 27_000)],
)
def test_limits_length_of_episodes_without_time_limit(limit: int, total: int, steps: int) -> None:
    env = Uneven(1)
    env.spec = replace(env.spec, limit=limit)
    assert module.step_limit(env, Clock(total)) == steps


def test_evaluation_repeats_and_changes_no_generator() -> None:
    env = GlobalRandomness(3)
    learner = Tiny(env.spec, TinyConfig(), Context(Seeds(0)))
    training = learner.agent()
    training.initial(2)
    before = [global_state(), training.state_dict(), learner.generator.bit_generator.state]
    results = [evaluate(learner.agent(), env, 5, Clock(1)) for _ in range(2)]
    assert_same(before, [global_state(), training.state_dict(), learner.generator.bit_generator.state])
    assert results[0].lengths == results[1].lengths


def test_evaluation_uses_masks() -> None:
    env = Masked(20)
    learner = Tiny(env.spec, TinyConfig(), Context(Seeds(0)))
    assert evaluate(learner.agent(), env, 5, Clock(1)).lengths == (4,) * 20


class CountingAgent(Constant):
    """Counts the steps of each episode in its memory; `is_first` restarts the count."""

    def initial(self, num_envs: int) -> Any:
        return {"count": np.full(num_envs, 99)}

    def act(self, obs: Any, is_first: Array, recurrent_state: Any, clock: Clock, explore: bool = True) -> Act:
        count = np.where(is_first, 0, recurrent_state["count"] + 1)
        return Act(count, {"count": count})


class CountingEnv(Truncated):
    """Checks that the action is the number of steps."""

    def step(self, action: Array) -> Timestep:
        assert (action == self.state["length"]).all()
        return super().step(action)


def test_evaluation_keeps_memory_of_the_agent() -> None:
    assert evaluate(CountingAgent(0), CountingEnv(4), 0, Clock(1)).returns == (10.0,) * 4


def test_sums_signals_of_each_episode() -> None:
    """As a loop over the steps does; steps of a row after its episode do not count."""
    env = Costly(3)
    assert evaluate(Constant(1), env, 4, Clock(1)).signals == {}
    found = evaluate(Constant(1), env, 4, Clock(1), signals=InfoColumns.of(Ranking(), env))  # type: ignore[arg-type]
    env = Costly(3)
    obs = env.reset(4).obs
    running = np.ones(3, bool)
    totals = np.zeros(3)
    while running.any():
        totals += running * cost_of(obs, np.ones(3))
        after = env.step(np.ones(3, np.int64))
        running &= ~(after.terminated | after.truncated)
        obs = after.obs
    assert found.signals == {"cost": pytest.approx(tuple(totals))}
    assert found.signal_means == {"cost": pytest.approx(totals.mean())}


class Ranking:
    """A learner with a limit of 1 on costs."""

    signals = ("cost",)

    def evaluation_rank(self, evaluation: Any) -> Any:
        cost = evaluation.signal_means["cost"]
        return (0, -cost) if cost > 1 else (1, evaluation.mean)


def test_learner_ranks_evaluations() -> None:
    """The state restores the best rank, also a state of an older version, which has only the mean."""
    numbers = [(5.0, 3.0), (2.0, 1.5), (1.0, 0.0), (3.0, 1.0), (2.0, 0.5), (6.0, 2.0)]
    evaluations = [Evaluation((total,), (4,), signals={"cost": (cost,)}) for total, cost in numbers]
    best, resumed = BestEvaluation(), BestEvaluation()
    found = []
    for evaluation in evaluations:
        resumed.load_state_dict(best.state_dict())
        found.append(best.improves(Ranking(), evaluation))  # type: ignore[arg-type]
        assert resumed.improves(Ranking(), evaluation) == found[-1]  # type: ignore[arg-type]
    assert found == [True, True, True, True, False, False]
    assert best.mean == 3.0
    resumed.load_state_dict({"best": 4.0})
    assert [resumed.improves(object(), evaluation) for evaluation in evaluations[:1] * 2] == [True, False]  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["high", (), (1.0, None)])
def test_rank_without_numbers_raises(wrong: Any) -> None:
    learner = Ranking()
    learner.evaluation_rank = lambda evaluation: wrong  # type: ignore[method-assign]
    with pytest.raises(PluginError, match=r"evaluation_rank of Ranking returned .* larger for better evaluations"):
        BestEvaluation().improves(learner, Evaluation((1.0,), (1,)))  # type: ignore[arg-type]
