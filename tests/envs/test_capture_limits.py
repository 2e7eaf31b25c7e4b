"""Capturing takes bounded time and space: equal data is stored once, and too much raises with its name."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlplug_core.runs import checkpoint
from rlplug_envs.capture.decoder import restore
from rlplug_envs.capture.encoder import capture
from rlplug_envs.capture.state_format import Uncapturable
from rlplug_envs.vector import SerialEnvs


class Holds(gymnasium.Env[Any, Any]):
    """Has an attribute `data`; its observation counts the steps."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, data: object = None) -> None:
        self.data: Any = data

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return np.array([self.time], np.float32), 1.0, False, False, {}


def chain(depth: int) -> object:
    head: object = None
    for _ in range(depth):
        head = [1, head]
    return head


def save_and_read(state: object, directory: Path) -> tuple[object, int]:
    """Save a state in a checkpoint; return the state read from it and its bytes on disk."""
    files = checkpoint.Checkpoints(directory).save("step", 0, {"env": {"state": state}}, {})
    size = sum(file.stat().st_size for file in files.path.iterdir())
    return checkpoint.read(files.path)[0]["env"]["state"], size


@pytest.mark.parametrize("depth", [200, 5_000, 100_000])
def test_deep_nesting_is_inexact(depth: int) -> None:
    env = SerialEnvs(lambda: Holds(chain(depth)), 1, "Deep-v0")
    assert env.spec.inexact == "Deep-v0: attribute 'data' is nested more than 100 levels deep, which cannot be captured"
    env.envs[0].data = None  # type: ignore[attr-defined]  # or its deletion overflows Python's stack


def test_nesting_that_grows_later_is_inexact() -> None:
    env = SerialEnvs(Holds, 1, "Deep-v0")
    assert env.spec.inexact == ""
    env.reset(1)
    env.envs[0].data = chain(300)  # type: ignore[attr-defined]
    assert env.state_dict()["inexact"].startswith("Deep-v0: attribute 'data' is nested more than 100 levels")


def test_moderate_nesting_is_restored(tmp_path: Path) -> None:
    env = Holds(chain(90))
    other = Holds()
    state, _ = save_and_read(capture(env), tmp_path)
    restore(other, state)
    assert other.data == env.data


def test_capturing_many_arrays_is_fast() -> None:
    env = Holds([np.zeros(4) for _ in range(15_000)])
    started = time.process_time()
    capture(env)
    assert time.process_time() - started < 2  # comparing every pair took half a minute


@pytest.mark.parametrize(
    "data",
    [
        lambda: [np.zeros(4) for _ in range(200_000)],
        lambda: {(number, 1): 0 for number in range(200_000)},
        lambda: [[number, None] for number in range(200_000)],
        lambda: [Holds() for _ in range(50_000)],
    ],
)
def test_too_many_values_raise(data: Callable[[], object]) -> None:
    env = Holds(data())
    env.other = np.random.default_rng(1)  # type: ignore[attr-defined]
    with pytest.raises(Uncapturable, match=r"attribute 'data' makes the state larger than [\d,]+ values"):
        capture([Holds(), env])


def test_too_many_bytes_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlplug_envs.capture.memory.MAX_BYTES", 5 << 20)
    rows = [Holds(np.full(1 << 17, float(row))) for row in range(6)]
    with pytest.raises(Uncapturable, match="attribute 'data' makes the state larger than 5 MiB"):
        capture(rows)


def test_many_rows_of_small_environments_are_captured() -> None:
    env = SerialEnvs(lambda: gymnasium.make("CartPole-v1", disable_env_checker=True), 3_000, "CartPole-v1", inexact="")
    env.reset(1)
    assert "inexact" not in env.state_dict()


@pytest.mark.parametrize(
    "data",
    [
        lambda: np.arange(250_000.0),
        lambda: np.asfortranarray(np.arange(250_000.0).reshape(500, 500)),
        lambda: [float(number) for number in range(250_000)],
        lambda: list(range(250_000)),
        lambda: {f"word {number}": number for number in range(100_000)},
        lambda: {number: f"word {number}" for number in range(100_000)},
        lambda: "word " * 400_000,
        lambda: bytes(range(256)) * 8_000,
    ],
    ids=["array", "fortran", "floats", "integers", "words", "keys", "text", "bytes"],
)
def test_equal_data_of_several_rows_is_stored_once(data: Callable[[], object], tmp_path: Path) -> None:
    _, single = save_and_read(capture([Holds(data())]), tmp_path / "one")
    rows = [Holds(data()) for _ in range(8)]
    state, size = save_and_read(capture(rows), tmp_path / "eight")
    assert single > 1_000_000
    assert size < single * 1.05
    fresh = [Holds() for _ in range(8)]
    restore(fresh, state)
    for row in fresh:
        assert type(row.data) is type(rows[0].data)
        assert np.array_equal(row.data, rows[0].data) if isinstance(row.data, np.ndarray) else row.data == rows[0].data
    if isinstance(rows[0].data, np.ndarray):
        fresh[0].data[...] = 0  # rows do not share memory
        assert fresh[1].data.any()


@pytest.mark.parametrize(
    "values",
    [
        [1.5, -0.0, float("inf"), float("nan"), 1e300],
        [0, 1, -(2**63), 2**63 - 1],
        [0, 2**63],
        [0, 1.0, True, None, "a", 2**80],
        [True, False],
        ["\ud800", "é", '"', "\n"],
        [float("nan"), 1],
    ],
)
def test_packed_values_keep_type_and_bits(values: list[object], tmp_path: Path) -> None:
    repeated = values * 20
    env = Holds(
        [
            repeated,
            tuple(repeated),
            deque(repeated, 1000),
            dict(enumerate(repeated)),
            {str(n): v for n, v in enumerate(repeated)},
        ]
    )
    state, _ = save_and_read(capture([env]), tmp_path)
    other = Holds()
    restore([other], state)
    assert repr(other.data) == repr(env.data)


def test_long_integers_are_restored(tmp_path: Path) -> None:
    other = Holds()
    state, _ = save_and_read(capture(Holds([-(3**20_000), 2**5_000])), tmp_path)
    restore(other, state)
    assert other.data == [-(3**20_000), 2**5_000]


def test_equal_arrays_keep_their_dtype_and_shape(tmp_path: Path) -> None:
    zeros = [np.zeros(10_000, kind) for kind in (np.float64, np.int64, np.uint64)] + [np.zeros((100, 100))]
    zeros.append(-np.zeros(10_000))
    other = Holds()
    state, _ = save_and_read(capture(Holds(zeros)), tmp_path)
    restore(other, state)
    assert [(array.dtype, array.shape) for array in other.data] == [(array.dtype, array.shape) for array in zeros]
    assert np.signbit(other.data[-1]).all()
    assert not np.signbit(other.data[0]).any()


def test_packed_list_stays_shared() -> None:
    long = list(range(100))
    env = Holds([long, long])
    other = Holds()
    restore(other, capture(env))
    assert other.data[0] is other.data[1]


def test_views_among_many_arrays_raise() -> None:
    whole = np.zeros(100)
    env = Holds([np.zeros(3) for _ in range(50)])
    env.whole = whole  # type: ignore[attr-defined]
    env.part = whole[5:7]  # type: ignore[attr-defined]
    with pytest.raises(Uncapturable, match="attribute 'part' shares memory with attribute 'whole'"):
        capture(env)
    apart = Holds()
    apart.left = whole[:50]  # type: ignore[attr-defined]
    apart.right = whole[50:]  # type: ignore[attr-defined]
    capture(apart)
