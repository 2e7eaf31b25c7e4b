"""Numbers that follow schedules: how they are written, held in range, followed, and refused where they cannot be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlplug_core.accelerate.forward import forward
from rlplug_core.agents import PolicyAgent
from rlplug_core.algorithm import Algorithm
from rlplug_core.batches import Rollout
from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.checkpoint import Checkpoints
from rlplug_core.clock import Clock
from rlplug_core.config import Config, Count, Fraction, Positive, convert, schedules
from rlplug_core.errors import BadConfig
from rlplug_core.nets.modules import Critic, Policy
from rlplug_core.nets.net import Net
from rlplug_core.plan import Plan
from rlplug_core.run import Run, resume, train
from rlplug_core.scheduled import at, guarded, unguarded
from rlplug_core.schedules import constant, cosine, linear, piecewise, written
from rlplug_core.types import Result
from tests.core.fakes import ENVS, Tiny, assert_same, make_runner

FILE = Path(__file__).resolve()
UNIT = st.floats(0, 1)


@pytest.mark.parametrize(
    ("text", "schedule", "values"),
    [
        ("constant(0.5)", constant(0.5), (0.5, 0.5)),
        ("linear(1e-3,0)", linear(1e-3, 0.0), (1e-3, 1e-3, 0.0)),
        ("linear(1, 0.1, 0.5)", linear(1.0, 0.1, 0.5), (1.0, 1.0, 0.1)),
        (" cosine (1e-3, 1e-5) ", cosine(1e-3, 1e-5), (1e-3, 1e-3, 1e-5)),
        ("piecewise(0:0.2,0.5:0.1,1:0.05)", piecewise([(0, 0.2), (0.5, 0.1), (1, 0.05)]), (0.2, 0.2, 0.1, 0.05)),
        ("piecewise(0.5:2, 0.2:1)", piecewise([(0.2, 1), (0.5, 2)]), (1.0, 2.0, 1.0)),
    ],
)
def test_a_schedule_is_what_is_written(text: str, schedule: Any, values: tuple[float, ...]) -> None:
    found = written(text)
    assert found is not None
    assert found.text == text.strip()
    assert found.values == values
    for progress in (0.0, 0.1, 0.25, 0.5, 0.8, 1.0):
        assert found.schedule(progress) == schedule(progress)


@given(st.lists(st.tuples(UNIT, st.floats(-9, 9)), min_size=1, max_size=5, unique_by=lambda point: point[0]), UNIT)
def test_no_point_lies_outside_the_values(points: list[tuple[float, float]], progress: float) -> None:
    """So that bounds which hold for these hold throughout."""
    found = written("piecewise(" + ",".join(f"{a!r}:{b!r}" for a, b in points) + ")")
    assert found is not None
    slack = 1e-9
    assert min(found.values) - slack <= found.schedule(progress) <= max(found.values) + slack
    assert found.schedule(0.0) == found.values[0]


@pytest.mark.parametrize("value", [1e-3, None, "0.1", "fast", "linear", "linear 1,2", "log(1,2)", [1.0]])
def test_other_values_are_no_schedules(value: Any) -> None:
    assert written(value) is None


@pytest.mark.parametrize(
    "text",
    [
        "linear(1)", "linear(a,b)", "linear(1,2,0)", "linear(1,2,1.5)", "linear(1,2,3,4)", "constant()",
        "cosine(1,nan)", "constant(1,2)", "cosine(1,2,0.5)", "piecewise()", "piecewise(0.1)", "piecewise(0:1,0:2)",
        "piecewise(2:1)", "linear(inf,0)", "piecewise(0:1:2)",
    ],
)  # fmt: skip
def test_what_is_wrongly_written_shows_how_it_is_written(text: str) -> None:
    with pytest.raises(BadConfig, match=r"is no schedule; write constant\(a\), linear\(a,b\), .*piecewise\(0:a,"):
        written(text)


# In configurations.


@dataclass(frozen=True)
class Inner:
    """A part."""

    share: Fraction = 0.5  # a share


@dataclass(frozen=True)
class Some(Config):
    """Options."""

    lr: Positive = 1e-3  # a step size
    share: Fraction = 0.5  # a share
    limit: Positive | None = None  # a limit
    count: Count = 3  # a number
    flag: bool = False  # a switch
    word: str = ""  # any text
    sizes: tuple[float, ...] = ()  # numbers
    inner: Inner = Inner()

    def both(self) -> float:
        return self.share + self.inner.share


def test_a_configuration_holds_the_start() -> None:
    values = {
        "lr": "linear(1e-2,0)",
        "inner": {"share": "cosine(0.25,1)"},
        "limit": "constant(2)",
        "word": "linear(1,2)",
    }
    config = convert(Some, values, "some", follows=True)
    assert (config.lr, config.inner.share, config.limit, config.word) == (1e-2, 0.25, 2.0, "linear(1,2)")
    found = schedules(Some, values, "some")
    assert {name: one.text for name, one in found.items()} == {
        "lr": "linear(1e-2,0)", "inner.share": "cosine(0.25,1)", "limit": "constant(2)"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("share", "linear(0.5,1.5)", "option 'share': expected `float` <= 1.0"),
        ("share", "piecewise(0:0.5,0.5:-1,1:0.5)", "option 'share': expected `float` >= 0.0"),
        ("inner.share", "linear(2,0.5)", "option 'inner.share': expected `float` <= 1.0"),
        ("lr", "linear(0,1e-3)", "option 'lr': expected `float` > 0.0"),
        ("lr", "linear(1e-3,-1)", "option 'lr': expected `float` > 0.0"),
        ("count", "linear(3,5)", "option 'count' cannot follow a schedule: only numbers with a fraction can"),
        ("flag", "linear(0,1)", "option 'flag' cannot follow a schedule"),
        ("sizes", "linear(0,1)", "option 'sizes' cannot follow a schedule"),
        ("lr", "linear(1)", r"some: option 'lr': 'linear\(1\)' is no schedule"),
        ("wrong", "linear(1,2)", "some has no option 'wrong'"),
    ],
)
def test_bounds_hold_from_beginning_to_end(name: str, text: str, sentence: str) -> None:
    with pytest.raises(BadConfig, match=sentence):
        convert(Some, {name: text}, "some", follows=True)


def test_only_algorithms_options_follow() -> None:
    """Those of wrappers, of runs and whatever else has a configuration do not, and say so."""
    with pytest.raises(BadConfig, match="some: option 'lr' cannot follow a schedule; give it a number"):
        convert(Some, {"lr": "constant(1)"}, "some")


def test_values_at_a_moment() -> None:
    config = at(Some(), {"lr": linear(1.0, 0.0), "inner.share": linear(0.0, 1.0)}, 0.25)
    assert config == Some(lr=0.75, inner=Inner(0.25))


def test_a_guard_keeps_what_follows_a_schedule_and_gives_the_rest() -> None:
    whole = Some(lr=2.0)
    guard = guarded(whole, {"lr", "inner.share"})
    assert isinstance(guard, Some)
    assert (guard.share, guard.count, guard.word) == (0.5, 3, "")
    for read in (lambda: guard.lr, lambda: guard.inner.share, guard.both):
        with pytest.raises(BadConfig, match=r"option '(lr|inner.share)' cannot follow a schedule: it is read once"):
            read()
    assert unguarded(guard) is whole
    assert guarded(whole, ()) is whole


@dataclass(frozen=True, slots=True)
class Tight:
    """A part of a configuration, with slots."""

    share: Fraction = 0.5  # between 0 and 1


@dataclass(frozen=True)
class Outer(Config):
    """Options with such a part."""

    lr: Positive = 0.1  # a step size
    tight: Tight = Tight()


def test_a_class_with_slots_that_cannot_be_guarded_is_named() -> None:
    """Beside it schedules are followed."""
    with pytest.raises(BadConfig, match=r"'tight.share' cannot follow a schedule: its class Tight has slots; give"):
        guarded(Outer(), {"lr", "tight.share"})
    assert guarded(Outer(), {"lr"}).tight.share == 0.5


# In learners.


class Stepped(Tiny):
    """Tiny with a step size that may follow a schedule."""

    def build(self) -> None:
        self.policy, self.critic = Policy(self.spec, self.config.net), Critic(self.spec, self.config.net)
        self.optim = self.optimiser([self.policy, self.critic], self.step_size(), 0.5)
        self.values = forward(self.critic, self.acting)


@dataclass(frozen=True)
class LateConfig(Config):
    """Options that are read at different times."""

    steps: Count = 4  # rollout length
    lr: Positive = 1e-2  # step size
    built: Fraction = 0.1  # read in build
    acted: Fraction = 0.1  # read for the agent
    stored: Fraction = 0.1  # read for the buffer
    used: Fraction = 0.1  # read in updates


class Late(Algorithm[Rollout]):
    """Reads each option where its name says."""

    Config = LateConfig
    config: LateConfig

    def build(self) -> None:
        self.policy = Policy(self.spec, Net(hidden=(4,)))
        self.optim = self.optimiser([self.policy], self.step_size())
        self.used: list[float] = []
        assert self.config.built >= 0

    def agent(self, rank: int = 0, ranks: int = 1) -> Any:
        assert self.config.acted >= 0
        return PolicyAgent(self.policy, self.agent_seeds(rank), self.acting)

    def buffer(self) -> Any:
        assert self.config.stored >= 0
        return RolloutBuffer(self.config.steps)

    def update(self, batch: Rollout, clock: Clock) -> Result:
        self.used.append(self.config.used)
        return Result({})


class Free:
    """A learner of its own that reads an option while it is made."""

    Config = LateConfig
    runners: ClassVar[tuple[str, ...]] = ("sync",)

    agent = buffer = update = Late.update

    def __init__(self, spec: Any, config: LateConfig, context: Any) -> None:
        self.lr = config.lr


def test_updates_see_the_value_of_their_moment() -> None:
    runner = make_runner(f"{FILE}:Late", total_steps=40, rows=2, used="linear(1,0)", lr="linear(1e-2,0)")
    runner.run(lambda: None)
    assert runner.learner.used == pytest.approx([1 - done / 40 for done in (8, 16, 24, 32, 40)])
    assert runner.learner.optim.lr(0.5) == 5e-3


@pytest.mark.parametrize("name", ["built", "acted", "stored"])
def test_what_is_read_once_cannot_follow(name: str, tmp_path: Path) -> None:
    """Found before anything is written, wherever it is read: nothing stays constant in silence."""
    with pytest.raises(BadConfig, match=rf"Late: option '{name}' cannot follow a schedule: .* give it a number"):
        train(f"{FILE}:Late", f"{ENVS}:Chain", {name: "linear(0.5,0)"}, out=tmp_path / "runs", hooks=False)
    assert not (tmp_path / "runs").exists()


def test_a_learner_of_its_own_is_refused_too() -> None:
    with pytest.raises(BadConfig, match="option 'lr' cannot follow a schedule"):
        make_runner(f"{FILE}:Free", lr="linear(1e-2,0)")


def test_step_sizes() -> None:
    """The schedule takes the place of `anneal`."""
    learner = make_runner(f"{FILE}:Late").learner
    assert [learner.step_size("lr", anneal)(0.5) for anneal in (False, True)] == [1e-2, 5e-3]
    learner = make_runner(f"{FILE}:Late", lr="cosine(1e-2,1e-4)").learner
    assert [learner.step_size("lr", anneal)(1.0) for anneal in (False, True)] == pytest.approx([1e-4, 1e-4])


def test_the_plan_keeps_what_was_written() -> None:
    plan = Plan.make(f"{FILE}:Late", f"{ENVS}:Chain", {"used": " linear(1, 0) ", "seed": 4})
    assert plan.config.used == 1.0
    assert (plan.flat["used"], plan.flat["lr"]) == ("linear(1, 0)", 1e-2)
    assert Plan.make(plan.algorithm, plan.env, plan.flat).flat == plan.flat


def test_run_options_follow_no_schedule() -> None:
    with pytest.raises(BadConfig, match="option 'worker_timeout' cannot follow a schedule"):
        Plan.make(f"{FILE}:Late", f"{ENVS}:Chain", {"worker_timeout": "linear(1,2)"})


@pytest.mark.parametrize("options", [{"runner": "sync"}, {"runner": "async", "inline": True}], ids=["sync", "async"])
def test_stopped_and_resumed_it_follows_the_same_line(options: dict[str, Any], tmp_path: Path) -> None:
    """Weights, moments, clock and generators of a run that was stopped and one that never was."""
    given = {"total_steps": 240, "rows": 2, "lr": "cosine(1e-1,1e-3)", "verdict_episodes": 0, "eval_episodes": 1}
    word, env = f"{FILE}:Stepped", f"{ENVS}:Chain"
    whole = train(word, env, {**given, **options}, out=tmp_path, name="whole", hooks=False)
    part = train(word, env, {**given, **options, "max_episodes": 15}, out=tmp_path, name="part", hooks=False)
    assert state(part)[0] < 240
    resume(part, total_steps=240, hooks=False)
    for one, other in zip(state(whole), state(part), strict=True):
        assert_same(one, other)
    assert whole.config["options"]["lr"] == "cosine(1e-1,1e-3)"
    constant = train(word, env, {**given, **options, "lr": 0.1}, out=tmp_path, name="constant", hooks=False)
    with pytest.raises(AssertionError):
        assert_same(state(whole)[1], state(constant)[1])


def state(run: Run) -> tuple[int, Any, Any]:
    """The step of a run's final checkpoint, its learner and the rest of what training goes on from."""
    saved, components, _, _ = Checkpoints(run.path / "checkpoints").load(("final",))
    return saved.step, components["learner"], [components.get(name) for name in ("clock", "actor", "workers", "buffer")]
