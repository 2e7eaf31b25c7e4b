"""Acting states of any form and extras of a learner work in every runner, checkpoint and policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from rlplug_core.acting.states import begin_acting, from_dicts, to_dicts
from rlplug_core.errors import PluginError
from rlplug_core.runs.api import load, resume, train
from tests.core.carrying import CARRYING, CARRYING_Q, CarryingAgent
from tests.core.fakes import ENVS, assert_same, make_runner, save_and_load

CASES: dict[str, dict[str, Any]] = {
    "sync": {"algorithm": CARRYING},
    "async": {"algorithm": CARRYING, "runner": "async", "workers": 2, "inline": True},
    "async-processes": {"algorithm": CARRYING, "runner": "async", "workers": 2},
    "decoupled": {"algorithm": CARRYING, "runner": "decoupled", "actors": 2, "inline": True},
    "learners": {"algorithm": CARRYING, "learners": 2},
    "replay": {"algorithm": CARRYING_Q},
    "replay-decoupled": {"algorithm": CARRYING_Q, "runner": "decoupled", "actors": 2, "inline": True},
    "replay-processes": {"algorithm": CARRYING_Q, "runner": "decoupled", "actors": 2},
}


@pytest.mark.parametrize("case", CASES)
def test_batches_have_the_states_and_extras_of_their_steps(case: str) -> None:
    """The agent asserts the form of its state; the learner compares each state with the agent's extras."""
    runner = make_runner(env=f"{ENVS}:Chain", **CASES[case])
    try:
        runner.run(lambda: None)
        assert runner.clock.updates > 5
    finally:
        runner.close()


@pytest.mark.parametrize("case", ["sync", "async", "decoupled", "replay", "replay-decoupled"])
def test_resumed_run_has_the_same_states(case: str) -> None:
    uninterrupted = make_runner(**CASES[case])
    uninterrupted.run(lambda: None)
    first = make_runner(**CASES[case])
    first.clock.limit = 46
    first.run(lambda: None)
    resumed = make_runner(**CASES[case])
    resumed.load_state_dict(save_and_load(first.state_dict()))
    resumed.clock.limit = uninterrupted.clock.limit
    resumed.run(lambda: None)
    assert_same(uninterrupted.state_dict(), resumed.state_dict())


def test_run_evaluates_loads_and_resumes(tmp_path: Path) -> None:
    options = {"total_timesteps": 200, "eval_episodes": 2, "final_eval_episodes": 2, "num_envs": 2}
    run = train(CARRYING_Q, f"{ENVS}:Chain", options, out=tmp_path, name="run", hooks=False)
    policy = load(run.path, trust=True)
    action = policy(np.eye(5, dtype=np.float32)[0])
    batch = policy(np.eye(5, dtype=np.float32)[[0, 0, 0]])
    assert set(np.asarray(batch).tolist()) == {int(action)}
    resume(run.path, total_timesteps=260, hooks=False, trust=True)


class Pair(NamedTuple):
    """A state of two named parts."""

    h: Any
    deep: Any


def test_round_trips_any_form() -> None:
    h = torch.arange(6.0).view(2, 3)
    c = np.arange(2)
    tree = Pair(h, {"list": [h, (c, None)]})
    plain = to_dicts(tree, 2)
    assert plain["deep"]["list"]["1"]["0"] is c
    assert isinstance(plain["h"], np.ndarray)
    restored = from_dicts(plain, tree)
    assert (type(restored), type(restored.deep["list"]), type(restored.deep["list"][1])) == (Pair, list, tuple)
    assert torch.equal(restored.deep["list"][0], h)
    assert restored.deep["list"][1] == (c, None) or np.array_equal(restored.deep["list"][1][0], c)


def test_state_without_rows_raises() -> None:
    agent = CarryingAgent(make_runner().snapshot().agent(), 5)
    agent.initial = lambda num_envs: (np.zeros((num_envs, 2)), {"count": 3})  # type: ignore[method-assign]
    with pytest.raises(
        PluginError, match=r"recurrent state.1.count is of type int; give an array or a tensor \[2, ...\]"
    ):
        begin_acting(agent, 2)
