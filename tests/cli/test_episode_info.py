"""Runs record the numbers in an environment's `info`: in the journal, tables, MLflow's metrics and evaluations."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pyarrow.parquet
import pytest
from gymnasium import spaces

from rlplug_cli.mlflow import episodes
from rlplug_cli.mlflow.batch import metrics_of
from rlplug_cli.training import final_lines
from rlplug_core.runs.api import Run, resume, train
from rlplug_core.runs.journal import Record, read
from rlplug_core.runs.schemas import is_valid
from tests.cli.conftest import Result

HERE = Path(__file__).resolve()


class Game(gymnasium.Env[Any, Any]):
    """Four steps that add random points to the score; about every fifth step has a bonus."""

    observation_space = spaces.Box(0, 10, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.score = 0
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.score += int(self.np_random.integers(3))
        self.steps += 1
        info: dict[str, Any] = {"score": self.score, "is_success": self.score > 4}
        bonus = {"bonus": 10} if self.np_random.random() < 0.2 else {}
        return np.full(1, self.steps, np.float32), 1.0, self.steps == 4, False, info | bonus


OPTIONS: dict[str, Any] = {
    "total_timesteps": 400, "num_envs": 2, "eval_every": 200, "eval_episodes": 5, "final_eval_episodes": 2,
    "log_every": 40, "checkpoint_every": 60,
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train("a2c", f"{HERE}:Game", OPTIONS, out=tmp_path_factory.mktemp("runs"), name="one", hooks=False)


def records_of(run: Run, kind: str) -> list[Record]:
    return list(read(run.journal, kinds=(kind,)))


def test_each_episode_has_its_info(run: Run) -> None:
    columns = run.episodes()
    assert len(columns["info/score"]) == len(columns["returns"]) == 100
    assert np.array_equal(columns["info/is_success"], columns["info/score"] > 4)
    bonus = columns["info/bonus"]
    assert 0 < np.isnan(bonus).sum() < 100
    assert set(bonus[~np.isnan(bonus)]) == {10.0}


def test_log_has_means_over_the_last_hundred_episodes(run: Run) -> None:
    last = records_of(run, "metrics")[-1].data
    columns = run.episodes()
    assert last["info/score"] == pytest.approx(columns["info/score"].mean())
    assert last["rollout/success_rate"] == last["info/is_success"] == pytest.approx(columns["info/is_success"].mean())
    assert last["info/bonus"] == 10.0


def test_mlflow_gets_info_metrics(run: Run) -> None:
    names = {name for record in read(run.journal) for name, *_ in metrics_of(record)}
    assert {"info/score", "info/bonus", "rollout/success_rate", "eval/info/score", "eval/success_rate"} <= names


def test_table_of_episodes_has_info_columns(run: Run) -> None:
    table = pyarrow.parquet.read_table(episodes.write(run.path))
    expected = run.episodes()
    assert np.array_equal(table["info/score"].to_numpy(), expected["info/score"])
    assert table["info/bonus"].null_count == np.isnan(expected["info/bonus"]).sum()


def test_evaluation_has_info_means(run: Run) -> None:
    result = run.evaluate(20)
    assert result.info_means["is_success"] == result.success_rate
    assert result.info_means["score"] == pytest.approx(np.mean([info["score"] for info in result.infos]))
    assert all("eval/info/score" in record.data for record in records_of(run, "evaluation"))


def test_evaluate_command_shows_info(run: Run, rlplug: Callable[..., Result]) -> None:
    result = rlplug("evaluate", str(run.path), "--episodes", "20", "--json")
    evaluation = json.loads(result.out)
    assert evaluation["info"]["is_success"] == evaluation["success_rate"]


def test_final_lines_show_the_success_rate(run: Run) -> None:
    (verdict,) = (record.data for record in records_of(run, "final_eval"))
    played = run.evaluate(OPTIONS["final_eval_episodes"])
    assert verdict["success_rate"] == played.success_rate
    assert f"success rate {verdict['last_success_rate']:.1%}, " in final_lines(verdict)[0]
    assert "success" not in final_lines({name: value for name, value in verdict.items() if "success" not in name})[0]


def test_resumed_run_records_the_same_info(run: Run, tmp_path: Path) -> None:
    """This includes episodes that had ended but were not yet recorded when the run stopped."""
    first = train("a2c", f"{HERE}:Game", {**OPTIONS, "total_timesteps": 228}, out=tmp_path, hooks=False)
    resume(first, total_timesteps=400, rescale=True, hooks=False)
    assert np.array_equal(first.episodes()["info/score"], run.episodes()["info/score"])
    assert records_of(first, "metrics")[-1].data["info/score"] == records_of(run, "metrics")[-1].data["info/score"]


@pytest.mark.parametrize("column", [[1.0], [1.0, "x"], "not a list", [1.0, [2.0]]])
def test_record_with_an_invalid_column_is_invalid(column: object) -> None:
    data = {"steps": [1, 2], "returns": [1.0, 2.0], "lengths": [1, 1], "workers": [0, 0]}
    assert is_valid("episodes", {**data, "info/score": [1.0, None]})
    assert not is_valid("episodes", {**data, "info/score": column})
