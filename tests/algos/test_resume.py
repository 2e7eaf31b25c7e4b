"""Exact resume in a fresh process: a run stopped between any two batches and resumed equals an uninterrupted run.

The plain tests stop one case of each class, and one with replay and one with rollouts twice; all other stops are
`slow`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from rlplug_core.runs.checkpoint import Checkpoints
from rlplug_core.runs.journal import read
from tests.algos.test_options import ALGORITHMS
from tests.waiting import PATIENCE

SCRIPT = Path(__file__).with_name("stopping.py")
#: Metrics that differ between all runs.
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
#: Every stop: a case, "update" or "step", and its number.
STOPS = [(case, what, mark) for case, (_, _, _, stops) in CASES.items() for what, mark in stops]
#: Stops of the plain tests that replace the last one of a case.
CHOSEN = {
    "dqn": (("update", 1), ("update", 186)),
    "ppo": (("update", 1), ("step", 139)),
}


def plain_stops() -> list[tuple[str, str, int]]:
    """Return the last stop of the first case of each class, or the stops in `CHOSEN`."""
    cases: dict[object, str] = {}
    for case, (algorithm, _, _, _) in CASES.items():
        cases.setdefault(getattr(STOPPING, algorithm).__bases__[-1], case)
    stops = []
    for case in dict.fromkeys([*cases.values(), *CHOSEN]):
        stops += [(case, *stop) for stop in CHOSEN.get(case, CASES[case][3][-1:])]
    return stops


PLAIN = plain_stops()


def groups(stops: list[tuple[str, str, int]], size: int) -> list[tuple[tuple[str, str, int], ...]]:
    """Split stops into groups of about `size`, which share two processes; the stops of a case stay together."""
    result: list[list[tuple[str, str, int]]] = [[]]
    for stop in stops:
        if len(result[-1]) >= size and result[-1][-1][0] != stop[0]:
            result.append([])
        result[-1].append(stop)
    return [tuple(group) for group in result]


#: Unfinished work at a stop: due batches in a burst, a part of a rollout, a step within an episode.
UNFINISHED = {
    **{("dqn", "update", mark): ("owed", owed) for mark, owed in ((1, 3), (2, 2), (3, 1), (4, 0), (186, 2))},
    ("ppo", "step", 139): ("position", 139 % 48),
    ("ppo-recurrent", "step", 139): ("position", 139 % 48),
    ("a3c-inline", "step", 101): ("position", 1),
}


def train_and_resume(place: Path, stops: Sequence[tuple[str, str, int]]) -> None:
    """Train to the end and to each stop in one process, and resume in another."""
    words = ["/".join(map(str, stop)) for stop in stops]
    for command, seed in (("train", "1"), ("resume", "2")):
        child = subprocess.run(
            [sys.executable, "-W", "error", SCRIPT, command, place, *words],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        assert child.returncode == 0, child.stderr


def differences(actual: Any, expected: Any, path: str = "") -> list[str]:
    """Return the paths at which two trees of state differ."""
    if type(actual) is not type(expected):
        return [f"{path}: {type(actual).__name__} and {type(expected).__name__}"]
    if isinstance(actual, dict):
        if actual.keys() != expected.keys():
            return [f"{path}: {sorted(actual.keys() ^ expected.keys())}"]
        return [line for key in actual for line in differences(actual[key], expected[key], f"{path}/{key}")]
    if isinstance(actual, list | tuple):
        if len(actual) != len(expected):
            return [f"{path}: {len(actual)} and {len(expected)} items"]
        return [
            line
            for i, pair in enumerate(zip(actual, expected, strict=True))
            for line in differences(*pair, f"{path}/{i}")
        ]
    if isinstance(actual, torch.Tensor):
        return differences(actual.numpy(), expected.numpy(), path)
    if isinstance(actual, np.ndarray):
        same = (
            actual.dtype == expected.dtype and actual.shape == expected.shape and actual.tobytes() == expected.tobytes()
        )
        return [] if same else [path]
    return [] if actual == expected else [f"{path}: {actual!r} and {expected!r}"]


def final_state(path: Path) -> dict[str, Any]:
    _, components, _, _ = Checkpoints(path / "checkpoints").load(("final",))
    del components["events"]["wall"]
    return components


def journal(path: Path, *kinds: str) -> list[tuple[str, int, dict[str, Any]]]:
    """Return the records of these kinds, without times."""
    return [
        (record.kind, record.step, {key: value for key, value in record.data.items() if key not in TIMES})
        for record in read(path / "journal.jsonl")
        if record.kind in kinds
    ]


@pytest.mark.parametrize(
    "group",
    [
        *(pytest.param(group, id=group[0][0]) for group in groups(PLAIN, len(PLAIN))),
        *(
            pytest.param(group, id=f"{group[0][0]}-all", marks=pytest.mark.slow)
            for group in groups([stop for stop in STOPS if stop not in PLAIN], 20)
        ),
    ],
)
def test_resumed_run_equals_uninterrupted_run(group: tuple[tuple[str, str, int], ...], tmp_path: Path) -> None:
    memory = Path("/dev/shm")  # syncing hundreds of checkpoints costs nothing there
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as name:
        root = Path(name)
        train_and_resume(root, group)
        for case, what, mark in group:
            whole = root / f"{case}-whole"
            resumed = root / f"{case}-{what}-{mark}"
            assert_unfinished(resumed, (case, what, mark))
            assert_same_state(whole, resumed)
            assert_same_journal(whole, resumed)
            # Offline runs have no actor.
            assert_same_actions(whole, resumed, steps=0 if CASES[case][2].get("offline") else 5)


def assert_unfinished(stopped: Path, stop: tuple[str, str, int]) -> None:
    """Assert that the stop left the unfinished work in `UNFINISHED`."""
    name, left = UNFINISHED.get(stop, ("", None))
    assert json.loads((stopped / "stopped.json").read_text()).get(name) == left, stop


def assert_same_state(whole: Path, resumed: Path) -> None:
    """Compare weights, optimizers, buffer, environments, generators, clock and best return bit for bit."""
    assert differences(final_state(whole), final_state(resumed)) == [], resumed.name


def assert_same_journal(whole: Path, resumed: Path) -> None:
    """The journal holds the same episodes, metrics and evaluations, each once."""
    kinds = ("episodes", "metrics", "evaluation")
    assert journal(whole, *kinds) == journal(resumed, *kinds), resumed.name
    assert len(journal(whole, "evaluation")) == 3
    assert len(journal(whole, "metrics")) == 10
    assert len(journal(resumed, "start")) == 2


def assert_same_actions(whole: Path, resumed: Path, steps: int) -> None:
    """Assert that both take the same actions in the next vector steps."""
    actual, expected = (json.loads((path / "next.json").read_text()) for path in (whole, resumed))
    assert actual == expected, resumed.name
    assert len(actual) == steps


def test_resume_is_exact_with_numba(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "0")
    stops = [stop for stop in PLAIN if stop[0] == "ppo"] + [("td3-threads", "update", 62)]
    train_and_resume(tmp_path, stops)
    for case, what, mark in stops:
        assert_same_state(tmp_path / f"{case}-whole", tmp_path / f"{case}-{what}-{mark}")
    start = journal(tmp_path / "ppo-whole", "start")[0][2]
    assert start["environment"]["loops"].startswith("numba")
    pytest.importorskip("scipy")
    start = journal(tmp_path / "td3-threads-whole", "start")[0][2]
    assert "SciPy" in start["environment"]["loops"]


def test_every_algorithm_has_a_case() -> None:
    """Names that share a class differ by options, which its cases enable."""
    covered = {base for algorithm, _, _, _ in CASES.values() for base in getattr(STOPPING, algorithm).__bases__}
    assert {*ALGORITHMS.values()} <= covered


def test_unfinished_work_belongs_to_stops() -> None:
    assert {*UNFINISHED} <= {*STOPS}
    assert {*PLAIN} <= {*STOPS}


def test_comparison_finds_a_single_bit() -> None:
    actual, expected = ({"buffer": {"data": {"fields": [np.ones((4, 1), np.float32)]}}} for _ in range(2))
    assert differences(actual, expected) == []
    expected["buffer"]["data"]["fields"][0].view(np.uint32)[0, 0] ^= 1
    assert differences(actual, expected) == ["/buffer/data/fields/0"]
