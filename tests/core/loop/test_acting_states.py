"""Acting states of any form, and extras that a learner writes, through every runner, checkpoints and policies."""

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
def test_every_batch_has_the_states_and_the_learners_extras_of_its_own_steps(case: str) -> None:
    """The agent asserts the form that it gets, the learner compares each state with the agent's extras."""
    runner = make_runner(env=f"{ENVS}:Chain", **CASES[case])
    try:
        runner.run(lambda: None)
        assert runner.clock.updates > 5
    finally:
        runner.close()


@pytest.mark.parametrize("case", ["sync", "async", "decoupled", "replay", "replay-decoupled"])
def test_a_resumed_run_carries_the_same(case: str) -> None:
    whole = make_runner(**CASES[case])
    whole.run(lambda: None)
    first = make_runner(**CASES[case])
    first.clock.limit = 46
    first.run(lambda: None)
    resumed = make_runner(**CASES[case])
    resumed.load_state_dict(save_and_load(first.state_dict()))
    resumed.clock.limit = whole.clock.limit
    resumed.run(lambda: None)
    assert_same(whole.state_dict(), resumed.state_dict())


def test_a_run_evaluates_resumes_and_loads_with_such_a_state(tmp_path: Path) -> None:
    options = {"total_timesteps": 200, "eval_episodes": 2, "final_eval_episodes": 2, "num_envs": 2}
    run = train(CARRYING_Q, f"{ENVS}:Chain", options, out=tmp_path, name="run", hooks=False)
    policy = load(run.path, trust=True)
    one = policy(np.eye(5, dtype=np.float32)[0])
    batch = policy(np.eye(5, dtype=np.float32)[[0, 0, 0]])
    assert set(np.asarray(batch).tolist()) == {int(one)}
    resume(run.path, total_timesteps=260, hooks=False, trust=True)


class Pair(NamedTuple):
    """Two parts by name."""

    h: Any
    deep: Any


def test_forms_come_back_as_they_were() -> None:
    h, c = torch.arange(6.0).view(2, 3), np.arange(2)
    tree = Pair(h, {"list": [h, (c, None)]})
    plain = to_dicts(tree, 2)
    assert plain["deep"]["list"]["1"]["0"] is c
    assert isinstance(plain["h"], np.ndarray)
    back = from_dicts(plain, tree)
    assert (type(back), type(back.deep["list"]), type(back.deep["list"][1])) == (Pair, list, tuple)
    assert torch.equal(back.deep["list"][0], h)
    assert back.deep["list"][1] == (c, None) or np.array_equal(back.deep["list"][1][0], c)


def test_a_state_without_rows_is_one_sentence() -> None:
    agent = CarryingAgent(make_runner().snapshot().agent(), 5)
    agent.initial = lambda num_envs: (np.zeros((num_envs, 2)), {"count": 3})  # type: ignore[method-assign]
    with pytest.raises(PluginError, match=r"acting state.1.count is of type int; give an array or a tensor \[2, ...\]"):
        begin_acting(agent, 2)
