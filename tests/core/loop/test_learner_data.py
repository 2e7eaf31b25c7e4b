"""A learner that asks for a data set gets it in every runner, with batches that resume exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlplug_core.buffers.dataset_files import read
from rlplug_core.clock import Clock
from rlplug_core.errors import UsageError
from rlplug_core.loop.build import build
from rlplug_core.loop.learner_data import fit_dataset, learner_dataset
from rlplug_core.loop.plan import Plan
from rlplug_core.runs.api import load, resume, train
from rlplug_core.runs.data import with_dataset
from rlplug_core.seeds import Seeds
from rlplug_core.testing.envs import Chain, Continuous
from tests.core.demonstrations import IMITATES, NEEDS_DATASET, write_chain
from tests.core.fakes import ENVS, RUNNERS, TINY, TINY_Q, assert_same, save_and_load

CHAIN = f"{ENVS}:Chain"
INLINE: dict[str, dict[str, Any]] = {
    "sync": {},
    "async": {"runner": "async", "workers": 2, "inline": True},
    "decoupled": {"runner": "decoupled", "actors": 2, "inline": True},
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_chain(tmp_path / "chain.npz")


def make_dataset(data: Path, seed: int = 0) -> Any:
    return learner_dataset(fit_dataset(read(str(data)), Chain(1)), Seeds(seed), torch.device("cpu"))


def test_batch_has_the_recorded_transitions(data: Path) -> None:
    dataset = make_dataset(data)
    arrays = np.load(data)
    for batch in (dataset.batch(64, gamma=0.9), *dataset.batches(7, gamma=0.9)):
        rows = batch.index.numpy()
        assert np.array_equal(batch.obs, arrays["observations"][rows])
        assert np.array_equal(batch.next_obs, arrays["next_observations"][rows])
        assert (batch.action.tolist(), batch.reward.tolist()) == ([1] * len(rows), arrays["rewards"][rows].tolist())
        assert np.allclose(batch.discount, np.where(arrays["terminations"][rows], 0, 0.9))
        assert (batch.weight == 1).all()
    assert len(dataset) == 30


def test_pass_has_each_transition_once_in_random_order(data: Path) -> None:
    dataset = make_dataset(data)
    parts = [batch.index.tolist() for batch in dataset.batches(7)]
    assert [len(part) for part in parts] == [7, 7, 7, 7, 2]
    rows = [row for part in parts for row in part]
    assert sorted(rows) == [*range(30)] != rows


def test_draws_depend_on_seed_and_resume_from_state(data: Path) -> None:
    dataset = make_dataset(data)
    same = make_dataset(data)
    other = make_dataset(data, 1)
    first = dataset.batch(20).index.tolist()
    assert first == same.batch(20).index.tolist() != other.batch(20).index.tolist()
    state = save_and_load(dataset.state_dict())
    assert state.keys() == {"sha256", "generator"}
    other.load_state_dict(state)
    assert dataset.batch(20).index.tolist() == other.batch(20).index.tolist()
    with pytest.raises(ValueError, match="the state belongs to a data set of SHA-256"):
        make_dataset(write_chain(data, 31)).load_state_dict(state)


def runner(data: Path | None, algorithm: str = IMITATES, **options: Any) -> Any:
    settings = {"seed": 3, "num_envs": 2, "total_timesteps": 200, **options}
    plan = with_dataset(Plan.make(algorithm, CHAIN, settings | ({"dataset": str(data)} if data else {})))
    return build(plan, Clock(200))


@pytest.mark.parametrize("case", INLINE)
def test_resumed_run_draws_the_same_batches(data: Path, case: str) -> None:
    uninterrupted, first, resumed = (runner(data, **INLINE[case]) for _ in range(3))
    uninterrupted.run(lambda: None)
    first.clock.limit = 90
    first.run(lambda: None)
    resumed.load_state_dict(save_and_load(first.state_dict()))
    resumed.clock.limit = uninterrupted.clock.limit
    resumed.run(lambda: None)
    assert_same(uninterrupted.state_dict(), resumed.state_dict())
    assert "data/first" in uninterrupted.metrics()
    without = runner(None, **INLINE[case])
    without.run(lambda: None)
    weights = [runner.snapshot().policy.outputs.weight.tolist() for runner in (uninterrupted, without)]
    assert weights[0] != weights[1]


@pytest.mark.parametrize("case", RUNNERS)
def test_learners_in_other_processes_get_the_data(tmp_path: Path, data: Path, case: str) -> None:
    """A learner without data has no such metric; `load` and `evaluate` need no data."""
    options = {"total_timesteps": 200, "num_envs": 2, "dataset": str(data), "final_eval_episodes": 2, **RUNNERS[case]}
    run = train(NEEDS_DATASET, CHAIN, {**options, "eval_episodes": 2}, out=tmp_path, hooks=False)
    records = run.journal.read_text(encoding="utf-8")
    assert "data/first" in records
    data.unlink()
    assert run.evaluate(2).episodes == 2
    load(run.path)(np.eye(5, dtype=np.float32)[2])


def test_resume_refuses_changed_data(tmp_path: Path, data: Path) -> None:
    options = {"total_timesteps": 100, "dataset": str(data), "eval_episodes": 2, "final_eval_episodes": 2}
    run = train(IMITATES, CHAIN, options, out=tmp_path, hooks=False)
    resume(run.path, total_timesteps=200, hooks=False)
    write_chain(data, 31)
    with pytest.raises(UsageError, match="has changed since the run started"):
        resume(run.path, total_timesteps=300, hooks=False)


@pytest.mark.parametrize(
    ("algorithm", "options", "message"),
    [
        (NEEDS_DATASET, {}, "learns from a data set; name it: --dataset FILE.npz, or minari:ID"),
        (IMITATES, {"dataset": "DATA", "dataset_share": 0.5}, "--dataset-share mixes a data set with the run's own"),
        (TINY_Q, {"dataset_share": 0.5}, "it needs --dataset"),
        (TINY_Q, {"dataset": "DATA", "dataset_share": 0.5, "offline": True}, "and no --offline"),
        (IMITATES, {"dataset": "DATA", "offline": True}, "neither asks for a data set nor has a replay buffer"),
        (TINY, {"dataset": "DATA"}, "neither asks for a data set nor has a replay buffer"),
    ],
)
def test_conflicting_options_raise(
    tmp_path: Path, data: Path, algorithm: str, options: dict[str, Any], message: str
) -> None:
    settings = {name: str(data) if value == "DATA" else value for name, value in options.items()}
    with pytest.raises(UsageError, match=message):
        train(algorithm, CHAIN, settings, out=tmp_path / "runs", hooks=False)
    assert not (tmp_path / "runs").exists() or not [*(tmp_path / "runs").iterdir()]


def test_dataset_with_other_spaces_raises(tmp_path: Path, data: Path) -> None:
    with pytest.raises(UsageError, match=r"'observations' has shape \[5\] in each step, not \[1\];"):
        train(IMITATES, f"{ENVS}:Continuous", {"dataset": str(data)}, out=tmp_path / "runs", hooks=False)
    assert Continuous(1).spec.obs.shape == (1,)
