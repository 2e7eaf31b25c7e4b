"""Exact resume in a fresh process: a run stopped between any two batches and resumed is the run that never stopped."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from rlplug_core.runs.checkpoint import Checkpoints
from rlplug_core.runs.journal import read
from tests.algos.test_options import ALGORITHMS

SCRIPT = Path(__file__).with_name("stopping.py")
#: Metrics that no two runs share.
TIMES = {"perf/wall_s", "perf/env_steps_per_s", "perf/evaluation_share", "perf/checkpoint_share"}


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("stopping", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


STOPPING = _script()
CASES = STOPPING.CASES
#: Cases that share two processes: few, so that tests which run beside each other seldom make the same runs twice.
GROUPS = [tuple(CASES)[start : start + 6] for start in range(0, len(CASES), 6)]
GROUP_OF = {case: group for group in GROUPS for case in group}
STOPS = [(case, what, mark) for case, (_, _, _, stops) in CASES.items() for what, mark in stops]
#: What a stop leaves: batches still owed in a burst, steps of a rollout half full, one in the middle of an episode.
UNFINISHED = {
    **{("dqn", "update", mark): ("owed", owed) for mark, owed in ((1, 3), (2, 2), (3, 1), (4, 0), (186, 2))},
    ("ppo", "step", 139): ("position", 139 % 48),
    ("ppo-recurrent", "step", 139): ("position", 139 % 48),
    ("a3c-inline", "step", 101): ("position", 1),
}


@pytest.fixture(scope="module")
def runs_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """The runs of a case, made with those of its group: trained and stopped in one process and resumed in another."""
    memory = Path("/dev/shm")  # some hundred checkpoints are synced to disk, which costs nothing there
    made: dict[tuple[str, ...], Path] = {}
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path_factory.getbasetemp()) as name:

        def make(case: str) -> Path:
            group = GROUP_OF[case]
            if group not in made:
                made[group] = Path(name, case)
                made[group].mkdir()
                trained_and_resumed(made[group], group)
            return made[group]

        yield make


def trained_and_resumed(place: Path, cases: tuple[str, ...]) -> None:
    for command, seed in (("train", "1"), ("resume", "2")):
        child = subprocess.run(
            [sys.executable, "-W", "error", SCRIPT, command, place, *cases], capture_output=True, text=True,
            timeout=1800, env={**os.environ, "PYTHONHASHSEED": seed},
        )  # fmt: skip
        assert child.returncode == 0, child.stderr


def differences(one: Any, other: Any, path: str = "") -> list[str]:
    """Where two trees of state are not the same bits."""
    if type(one) is not type(other):
        return [f"{path}: {type(one).__name__} and {type(other).__name__}"]
    if isinstance(one, dict):
        if one.keys() != other.keys():
            return [f"{path}: {sorted(one.keys() ^ other.keys())}"]
        return [line for key in one for line in differences(one[key], other[key], f"{path}/{key}")]
    if isinstance(one, list | tuple):
        if len(one) != len(other):
            return [f"{path}: {len(one)} and {len(other)} items"]
        return [
            line for i, pair in enumerate(zip(one, other, strict=True)) for line in differences(*pair, f"{path}/{i}")
        ]
    if isinstance(one, torch.Tensor):
        return differences(one.numpy(), other.numpy(), path)
    if isinstance(one, np.ndarray):
        same = one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
        return [] if same else [path]
    return [] if one == other else [f"{path}: {one!r} and {other!r}"]


def final_state(path: Path) -> dict[str, Any]:
    _, components, _, _ = Checkpoints(path / "checkpoints").load(("final",))
    del components["events"]["wall"]
    return components


def journal(path: Path, *kinds: str) -> list[tuple[str, int, dict[str, Any]]]:
    """The records of these kinds, without measurements of time."""
    return [
        (record.kind, record.step, {key: value for key, value in record.data.items() if key not in TIMES})
        for record in read(path / "journal.jsonl")
        if record.kind in kinds
    ]


@pytest.mark.parametrize(("case", "what", "mark"), STOPS)
def test_resumed_run_is_the_run_that_never_stopped(
    runs_of: Callable[[str], Path], case: str, what: str, mark: int
) -> None:
    root = runs_of(case)
    whole, resumed = root / f"{case}-whole", root / f"{case}-{what}-{mark}"
    assert_left_in_the_middle(resumed, (case, what, mark))
    assert_in_the_same_state(whole, resumed)
    assert_tells_the_same_story(whole, resumed)
    assert_acts_alike(whole, resumed, steps=0 if CASES[case][2].get("offline") else 5)  # no actor acts from data alone


def assert_left_in_the_middle(stopped: Path, stop: tuple[str, str, int]) -> None:
    """The stop fell where `UNFINISHED` says."""
    name, left = UNFINISHED.get(stop, ("", None))
    assert json.loads((stopped / "stopped.json").read_text()).get(name) == left


def assert_in_the_same_state(whole: Path, resumed: Path) -> None:
    """Weights, optimizers, buffer, environments, generators, clock, best return: every bit of the final checkpoint."""
    assert differences(final_state(whole), final_state(resumed)) == []


def assert_tells_the_same_story(whole: Path, resumed: Path) -> None:
    """The journal holds the same episodes, metrics and evaluations, each once."""
    kinds = ("episodes", "metrics", "evaluation")
    assert journal(whole, *kinds) == journal(resumed, *kinds)
    assert len(journal(whole, "evaluation")) == 3
    assert len(journal(whole, "metrics")) == 10
    assert len(journal(resumed, "start")) == 2


def assert_acts_alike(whole: Path, resumed: Path, steps: int) -> None:
    """Both go on with the same actions in this many vector steps."""
    one, other = (json.loads((path / "next.json").read_text()) for path in (whole, resumed))
    assert one == other
    assert len(one) == steps


def test_so_it_is_with_loops_by_numba(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "0")
    cases = ("ppo", "dqn", "td3-threads")
    trained_and_resumed(tmp_path, cases)
    for case, what, mark in STOPS:
        if case in cases:
            assert_in_the_same_state(tmp_path / f"{case}-whole", tmp_path / f"{case}-{what}-{mark}")
    start = journal(tmp_path / "ppo-whole", "start")[0][2]
    assert start["environment"]["loops"].startswith("numba")
    pytest.importorskip("scipy")
    start = journal(tmp_path / "td3-threads-whole", "start")[0][2]
    assert "SciPy" in start["environment"]["loops"]


def test_no_algorithm_is_left_out() -> None:
    """Names that share a class are switches of it, which its cases turn."""
    covered = {base for algorithm, _, _, _ in CASES.values() for base in getattr(STOPPING, algorithm).__bases__}
    assert {*ALGORITHMS.values()} <= covered


def test_every_stop_of_note_is_one() -> None:
    assert {*UNFINISHED} <= {*STOPS}


def test_comparison_notices_a_single_bit() -> None:
    one, other = ({"buffer": {"data": {"fields": [np.ones((4, 1), np.float32)]}}} for _ in range(2))
    assert differences(one, other) == []
    other["buffer"]["data"]["fields"][0].view(np.uint32)[0, 0] ^= 1
    assert differences(one, other) == ["/buffer/data/fields/0"]
