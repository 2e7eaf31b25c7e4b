"""Loggers that a run names write all metrics of its journal; TensorBoard's own reader reads its files."""

from __future__ import annotations

import csv
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from rlplug_cli import loggers
from rlplug_cli.loggers.following import finite_metrics
from rlplug_core import plugins
from rlplug_core.config.files import open_regular
from rlplug_core.errors import UsageError
from rlplug_core.runs.api import Run, open_run, resume, train
from rlplug_core.runs.journal import read
from tests.cli.conftest import Result

# TensorBoard's reader imports modules that warn.
pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning"), pytest.mark.usefixtures("no_mlflow")]

CHAIN = "rlplug_core.testing.envs:Chain"
OPTIONS: dict[str, Any] = {
    "total_timesteps": 400, "eval_every": 200, "eval_episodes": 2, "final_eval_episodes": 2, "log_every": 50,
    "checkpoint_every": 100, "log": ("csv", "tensorboard"),
}  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return train("a2c", CHAIN, OPTIONS, out=tmp_path, name="one")


def journal_points(run: Run) -> list[tuple[int, str, float]]:
    return [(each.step, name, value) for each in read(run.journal) for name, value in finite_metrics(each).items()]


def csv_points(run: Run) -> list[tuple[int, str, float]]:
    with (run.path / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        (int(row["step"]), name, float(value))
        for row in rows
        for name, value in row.items()
        if name not in ("step", "time") and value
    ]


def tensorboard_points(run: Run) -> list[tuple[int, str, float]]:
    events = EventAccumulator(str(run.path / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return [(event.step, tag, event.value) for tag in events.Tags()["scalars"] for event in events.Scalars(tag)]


def match_journal(points: list[tuple[int, str, float]], run: Run) -> bool:
    expected = sorted(journal_points(run))
    assert [each[:2] for each in sorted(points)] == [each[:2] for each in expected]
    return [each[2] for each in sorted(points)] == pytest.approx([each[2] for each in expected], rel=1e-6)


def test_csv_has_every_metric(run: Run) -> None:
    assert match_journal(csv_points(run), run)
    assert {"eval/return_mean", "final_eval/return_mean", "rollout/return_mean"} <= {
        name for _, name, _ in csv_points(run)
    }


def test_tensorboard_has_every_metric(run: Run) -> None:
    assert match_journal(tensorboard_points(run), run)


def test_resumed_run_stores_repeated_metrics_once(run: Run) -> None:
    resume(run, total_timesteps=600)
    assert match_journal(csv_points(run), run)
    assert match_journal(tensorboard_points(run), run)
    assert max(step for step, _, _ in csv_points(run)) == 600


def test_loggers_are_off_by_default(tmp_path: Path) -> None:
    run = train("a2c", CHAIN, {**OPTIONS, "log": ()}, out=tmp_path)
    other = train("a2c", CHAIN, OPTIONS, out=tmp_path, hooks=False)
    for path in (run.path, other.path):
        assert not (path / "metrics.csv").exists()
        assert not (path / "tensorboard").exists()


def test_unknown_logger_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no logger 'tensorbord' is installed; did you mean 'tensorboard'"):
        train("a2c", CHAIN, {**OPTIONS, "log": ("tensorbord",)}, out=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("log", [("--log", "csv,tensorboard"), ("--log", "csv", "--log", "tensorboard")])
def test_command_line_takes_several_loggers(
    rlplug: Callable[..., Result], tmp_path: Path, log: tuple[str, ...]
) -> None:
    words = ("--total-timesteps", "200", "--eval-episodes", "1", "--final-eval-episodes", "1", *log)
    result = rlplug("run", "a2c", CHAIN, *words, "--name", "two", "--out", str(tmp_path), "-q")
    assert result.code == 0
    assert match_journal(csv_points(open_run(tmp_path / "two")), open_run(tmp_path / "two"))
    assert match_journal(tensorboard_points(open_run(tmp_path / "two")), open_run(tmp_path / "two"))


def test_logger_does_not_follow_a_link(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The logger is disabled with a reason, and the run continues."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    run = train("a2c", CHAIN, {**OPTIONS, "log": ("tensorboard",)}, out=tmp_path, name="three")
    for file in (run.path / "tensorboard").iterdir():
        file.unlink()
    (run.path / "tensorboard").rmdir()
    (run.path / "tensorboard").symlink_to(elsewhere)
    assert resume(run, total_timesteps=600).status == "finished"
    assert not list(elsewhere.iterdir())
    assert "it is not a directory of the run's own" in capsys.readouterr().err


def test_logger_modules_are_short() -> None:
    folder = Path(loggers.__file__).parent
    assert {path.stem for path in folder.glob("*.py")} >= {"csv", "tensorboard", "wandb"}
    for path in folder.glob("*.py"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 80, path.name


def test_csv_is_complete_after_a_failed_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the past, one error of the disk disabled the logger, and all later rows were missing."""
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    plugins.refresh()
    calls = iter(range(100))

    def fail_twice(*arguments: Any) -> Any:
        if next(calls) < 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return open_regular(*arguments)

    monkeypatch.setattr("rlplug_cli.loggers.csv.open_regular", fail_twice)
    run = train("a2c", CHAIN, {**OPTIONS, "log": ("csv",)}, out=tmp_path, name="one")
    assert "metrics.csv cannot be written: No space left on device; free some space" in capsys.readouterr().err
    assert match_journal(csv_points(run), run)
    assert not run.directory.has_pending_hooks()


def test_tensorboard_compares_runs_by_their_options(run: Run) -> None:
    """The tab HParams has every option."""
    events = EventAccumulator(str(run.path / "tensorboard"))
    events.Reload()
    data = events.summary_metadata
    start = HParamsPluginData.FromString(data["_hparams_/session_start_info"].plugin_data.content)
    options = dict(start.session_start_info.hparams.items())
    assert options["algorithm"].string_value == "a2c"
    assert options["n_steps"].number_value == run.config["options"]["n_steps"]
    assert options["anneal_lr"].HasField("bool_value")
    assert options["log"].string_value == "['csv', 'tensorboard']"
    assert "final_eval/return_mean" in events.Tags()["scalars"]  # a column of the tab, like each metric
