"""Captured environments continue exactly, in a new process too; state that cannot be captured is inexact."""

from __future__ import annotations

import enum
import itertools
import os
import random
import re
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlplug_core.config.import_string import load_target
from rlplug_core.errors import BadEnv, PluginError
from rlplug_core.protocols import Env
from rlplug_core.runs import checkpoint
from rlplug_core.seeds import global_state
from rlplug_envs.adapter import Adapter
from rlplug_envs.capture.decoder import restore
from rlplug_envs.capture.encoder import capture
from rlplug_envs.capture.self_test import self_test
from rlplug_envs.capture.state_format import Uncapturable
from rlplug_envs.families.classic import Gymnasium
from rlplug_envs.vector import SerialEnvs
from tests.cli.warm import Fork
from tests.envs.continuing import continue_in_new_process, run

EXACT = [
    ("CartPole-v1", 3), ("CartPole-v1", 16), ("MountainCar-v0", 2), ("MountainCarContinuous-v0", 2), ("Pendulum-v1", 2),
    ("Acrobot-v1", 2), ("FrozenLake-v1", 3), ("Taxi-v4", 2), ("CliffWalking-v1", 2), ("CliffWalkingSlippery-v1", 2),
    ("Blackjack-v1", 3),
]  # fmt: skip


def test_known_environments_continue_exactly_in_another_process(fork: Callable[..., Fork], tmp_path: Path) -> None:
    results = continue_in_new_process(fork, EXACT, tmp_path)
    assert sum(ended for _, ended in results.values()) > 20


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_gymnasium_vectors_continue_exactly(mode: AutoresetMode) -> None:
    def make() -> Env:
        single = lambda: gymnasium.make("CartPole-v1", disable_env_checker=True, max_episode_steps=15)  # noqa: E731
        return Adapter(lambda: SyncVectorEnv([single] * 3, autoreset_mode=mode), inexact=None)

    env = make()
    assert env.spec.inexact == ""
    for before in range(18):  # the state may be between the two steps of a NEXT_STEP reset
        env.reset(1)
        if before:
            run(env, before)
        state = env.state_dict()
        expected = run(env, 40)
        other = make()
        other.load_state_dict(state)
        assert run(other, 40) == expected
        other.load_state_dict(state)
        assert run(other, 40) == expected


class Toy(gymnasium.Env[Any, Any]):
    """Its observation counts its steps; subclasses hide the counter."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = spaces.Discrete(2)
    hidden: Any

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.action_space.seed(seed)
        return np.zeros(1, np.float32), {}

    def count(self) -> float:
        raise NotImplementedError

    def step(self, action: Any) -> Any:
        return np.array([self.count()], np.float32), 1.0, False, False, {}


class Closure(Toy):
    def __init__(self) -> None:
        steps = 0

        def count() -> int:
            nonlocal steps
            steps += 1
            return steps

        self.hidden = count

    def count(self) -> float:
        return float(self.hidden())


class InC(Toy):
    def __init__(self) -> None:
        self.hidden = itertools.count()

    def count(self) -> float:
        return float(next(self.hidden))


class Handle:
    """Owns memory in C and frees it: two owners of the same memory would both free it."""

    def __init__(self) -> None:
        self.address = id(self)

    def __del__(self) -> None:
        pass


class Owns(Toy):
    def __init__(self) -> None:
        self.hidden = Handle()

    def count(self) -> float:
        return 0.0


class View(Toy):
    def __init__(self) -> None:
        self.place = np.zeros(2)
        self.hidden = self.place[:1]

    def count(self) -> float:
        self.hidden += 1
        return float(self.place[0])


class Objects(Toy):
    def __init__(self) -> None:
        self.hidden = np.array([[1], None], object)

    def count(self) -> float:
        return 0.0


class Fields(Toy):
    def __init__(self) -> None:
        self.hidden = np.zeros(2, [("steps", np.int64), ("place", np.float32)])

    def count(self) -> float:
        self.hidden["steps"] += 1
        return float(self.hidden["steps"][0])


class Slots(Toy):
    class Inner:
        __slots__ = ("steps",)

    def __init__(self) -> None:
        self.hidden = self.Inner()

    def count(self) -> float:
        return 0.0


STEPS = {"number": 0}


class Global(Toy):
    """Its state is a global variable, so only its outputs show that it was not captured."""

    def count(self) -> float:
        STEPS["number"] += 1
        return float(STEPS["number"])


class Split(Toy):
    """Raises if its age differs from the age in a class attribute, which is not captured."""

    shared: Any = {}

    def count(self) -> float:
        if self.age != self.shared.get("age", 0):
            raise RuntimeError("who am I?")
        self.age += 1
        self.shared["age"] = self.age
        return 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.age = self.shared["age"] = 0
        return super().reset(seed=seed)


class Module(Toy):
    """Draws from the process's global generator, which a run saves separately."""

    def count(self) -> float:
        return random.random() + np.random.random()


def test_closure_variables_are_captured() -> None:
    assert SerialEnvs(Closure, 2, "Toy-v0").spec.inexact == ""

    def counter(count: int) -> Any:
        def following() -> int:
            nonlocal count
            count += 1
            return count

        return following

    saved, fresh = Toy(), Toy()
    saved.hidden = counter(7)  # type: ignore[attr-defined]
    fresh.hidden = counter(0)  # type: ignore[attr-defined]
    restore(fresh, capture(saved))
    assert (saved.hidden(), fresh.hidden(), fresh.hidden()) == (8, 8, 9)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (InC, "attribute 'hidden' is a itertools.count, which cannot be captured"),
        (Owns, "attribute 'hidden' is a .*Handle, which cannot be captured"),
        (View, "attribute 'hidden' shares memory with attribute 'place', which cannot be captured"),
        (Objects, "attribute 'hidden' is an array of objects, which cannot be captured"),
        (Fields, "attribute 'hidden' is an array with fields, which cannot be captured"),
        (Split, "Toy-v0 raised after its state was restored: RuntimeError: who am I?"),
        (Slots, "attribute 'hidden' is a .*Slots.Inner, which cannot be captured"),
        (Global, "Toy-v0 differs 1 steps after its state was restored: part of it is hidden"),
    ],
)
def test_uncapturable_state_is_inexact(kind: type[Toy], reason: str) -> None:
    env = SerialEnvs(kind, 2, "Toy-v0")
    assert re.search(reason, env.spec.inexact)
    env.reset(0)
    state = env.state_dict()
    assert state == {"inexact": env.spec.inexact}
    with pytest.raises(BadEnv, match=r"Toy-v0: its state was not saved .*; reset it instead"):
        env.load_state_dict(state)


@pytest.mark.parametrize("kind", [InC, Split, Global])
def test_reason_does_not_depend_on_the_path(kind: type[Toy]) -> None:
    """A resumed run has a copy of the file, and its checkpoints equal those of an uninterrupted run."""
    paths = ("/original/toy.py:Toy", "/runs/r/sources/toy-1a2b.py:Toy")
    original, copy = (SerialEnvs(kind, 1, path).spec.inexact for path in paths)
    assert original == copy != ""


def test_state_that_becomes_uncapturable_is_inexact() -> None:
    env = SerialEnvs(Toy, 1, "/one/toy.py:Toy", inexact="")
    env.reset(0)
    env.envs[0].hidden = iter(())  # type: ignore[attr-defined]
    assert env.state_dict()["inexact"].startswith("Toy: attribute 'hidden' is a tuple_iterator")


class Phase(enum.Enum):
    ONE = 1
    TWO = 2


class Helper:
    """A plain object with a part of an environment's state."""

    def __init__(self, owner: Any) -> None:
        self.steps = 0
        self.owner = owner


class Everything(Toy):
    """State in every form that can be captured; each part contributes to the observation."""

    def __init__(self) -> None:
        self.action_space = spaces.Discrete(2)
        self.legacy = np.random.RandomState(1)
        self.random = random.Random(1)
        self.mersenne = np.random.Generator(np.random.MT19937(5))
        self.shared = self.mersenne
        self.first = np.random.default_rng(1)
        self.second = np.random.default_rng(2)
        self.window: Any = deque([0.0] * 3, maxlen=3)
        self.table: Any = {(0, 1): [1, 2], 3: {"a": (1.5, [2])}, "~": None}
        self.scalar: Any = np.float32(0.1)
        self.fortran = np.asfortranarray(np.arange(6.0).reshape(2, 3))
        self.plain = np.zeros(2)
        self.text: Any = np.array([b"ab", b"c"])
        self.helper = Helper(self)
        self.phase = Phase.ONE
        self.numbers = (float("inf"), -0.0, 2**100, b"\x00\xff", None, True)
        self.code = (np.sin, Helper, len, os)
        self.square = lambda x: x * x
        self.lazy: Any

    def count(self) -> float:
        self.helper.steps += 1
        self.lazy = [self.helper.steps]
        self.phase = Phase.TWO if self.helper.steps % 2 else Phase.ONE
        self.scalar += np.float32(0.1)
        self.fortran *= 1.1
        self.plain += 1
        drawn = self.legacy.rand() + self.random.random() + self.mersenne.random() + self.shared.random()
        drawn += self.first.random() + self.second.random()
        drawn += self.action_space.sample() + self.np_random.random()
        self.window.append(drawn)
        self.table[(0, 1)].append(drawn)
        total = sum(self.window) + sum(self.table[(0, 1)]) + float(self.scalar) + self.fortran.sum()
        total += self.plain.sum() + self.phase.value
        assert self.helper.owner is self
        return self.square(total)


def test_every_capturable_form_is_restored(tmp_path: Path) -> None:
    env = SerialEnvs(Everything, 2, "Everything-v0")
    assert env.spec.inexact == ""
    env.reset(0)
    run(env, 10)
    saved = checkpoint.Checkpoints(tmp_path).save("step", 0, {"env": env.state_dict()}, {})
    before = env.envs[0]
    forms = {name: getattr(before, name) for name in ("table", "numbers", "text", "scalar", "window", "fortran")}
    forms = {name: (type(value), repr(value)) for name, value in forms.items()}
    expected = run(env, 30)
    fresh = SerialEnvs(Everything, 2, "Everything-v0", inexact="")
    fresh.load_state_dict(checkpoint.read(saved.path)[0]["env"])
    after: Any = fresh.envs[0]
    assert {name: (type(getattr(after, name)), repr(getattr(after, name))) for name in forms} == forms
    assert after.shared is after.mersenne
    assert after.helper.owner is after
    assert after.fortran.flags.f_contiguous
    assert not after.fortran.flags.c_contiguous
    assert run(fresh, 30) == expected


def test_restore_removes_later_attributes() -> None:
    env = Everything()
    env.reset(seed=0)
    state = capture(env)
    env.step(0)
    assert hasattr(env, "lazy")
    restore(env, state)
    assert not hasattr(env, "lazy")


def test_restore_copies_the_state() -> None:
    env = Everything()
    env.reset(seed=0)
    state = capture(env)
    restore(env, state)
    env.step(0)
    other = Everything()
    other.reset(seed=1)
    restore(other, state)
    assert other.fortran.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert other.plain.tolist() == [0, 0]
    assert other.table[(0, 1)] == [1, 2]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda env: setattr(env, "phase", 1), "attribute 'phase' was the enum member ONE, here it is 1"),
        (lambda env: setattr(env, "square", None), "attribute 'square' is missing in the environment to restore"),
    ],
)
def test_restore_into_a_different_environment_raises(change: Callable[[Any], None], reason: str) -> None:
    env, other = Everything(), Everything()
    change(other)
    with pytest.raises(Uncapturable, match=reason):
        restore(other, capture(env))


def test_state_cannot_name_code_to_run() -> None:
    env = Everything()
    state = capture(env)
    state["attributes"]["mersenne"]["state"]["bit_generator"] = "seed"
    with pytest.raises(Uncapturable, match="draws from seed, which this version does not know"):
        restore(env, state)


def test_self_test_restores_global_generators() -> None:
    before = repr(global_state())
    assert self_test(lambda: SerialEnvs(Module, 1, "Module-v0", inexact="")) == ""
    assert repr(global_state()) == before


def test_other_number_of_rows_raises() -> None:
    env = Gymnasium().make("CartPole-v1", 2)
    env.reset(0)
    with pytest.raises(BadEnv, match="the saved state is of 2 environments, these are 3"):
        Gymnasium().make("CartPole-v1", 3).load_state_dict(env.state_dict())


def test_copy_of_a_file_loads_the_state(tmp_path: Path) -> None:
    """A run copies `./file.py:Name`, which Python imports as another module; other classes still raise."""
    lines = ["from tests.envs.walks import Walk", "class Mine(Walk): pass", "class Other(Walk): pass"]
    files = [tmp_path / "walk.py", tmp_path / "walk-0123abcd.py"]
    for file in files:
        file.write_text("\n".join(lines), encoding="utf-8")
    original, copy = (load_target(f"{file}:Mine", "environment") for file in files)
    assert original.__module__ != copy.__module__
    env = SerialEnvs(original, 2, inexact="")
    env.reset(0)
    run(env, 10)
    state = env.state_dict()
    expected = run(env, 30)
    fresh = SerialEnvs(copy, 2, inexact="")
    fresh.load_state_dict(state)
    assert run(fresh, 30) == expected
    with pytest.raises(Uncapturable, match="the environment was a Mine, here it is a Other"):
        SerialEnvs(load_target(f"{files[1]}:Other", "environment"), 2, inexact="").load_state_dict(state)


def test_self_test_compares_fewer_slow_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    played = list[float]()

    class Slow(Toy):
        """Each step takes a second of a simulated clock."""

        def step(self, action: Any) -> Any:
            played.append(1.0)
            return np.zeros(1, np.float32), 1.0, False, False, {}

    def count_steps() -> int:
        played.clear()
        assert self_test(lambda: SerialEnvs(Slow, 1, "Slow-v0", inexact="")) == ""
        return len(played)

    quick = count_steps()
    monkeypatch.setattr(time, "perf_counter", lambda: float(len(played)))
    assert quick > 4 * count_steps() > 0


class Clock:
    """Not an environment."""

    def reset(self) -> None:
        raise RuntimeError("stopped")


class Fails(gymnasium.Env[Any, Any]):
    """Raises in its fourth reset, or in a `reset` of another class in its third step."""

    observation_space, action_space = spaces.Discrete(9), spaces.Discrete(2)
    resets = 0

    def __init__(self, method: str) -> None:
        self.method = method

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.resets = self.resets + 1
        self.age = 0
        if self.method == "reset" and self.resets == 4:
            raise RuntimeError("stopped")
        return 1, {}

    def step(self, action: Any) -> Any:
        self.age += 1
        if self.method == "step" and self.age == 3:
            Clock().reset()
        return 1, 1.0, self.age == 4, False, {}


@pytest.mark.parametrize("method", ["reset", "step"])
@pytest.mark.parametrize(
    "make",
    [
        lambda method: SerialEnvs(lambda: Fails(method), 1, "Fails"),
        lambda method: Adapter(lambda: SyncVectorEnv([lambda: Fails(method)]), "Fails"),
    ],
    ids=["serial", "vector"],
)
def test_error_before_training_names_the_method(make: Any, method: str) -> None:
    message = rf"^Fails raised in {method}\(\), tried before training: RuntimeError: stopped; --traceback shows where$"
    with pytest.raises(PluginError, match=message):
        make(method)
