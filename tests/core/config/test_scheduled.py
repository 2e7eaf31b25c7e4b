"""Options that follow schedules: syntax, bounds, values during a run, and options that cannot."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlplug_core.acting.policy_agent import PolicyAgent
from rlplug_core.algorithm import Algorithm
from rlplug_core.batches import Rollout
from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.clock import Clock
from rlplug_core.config.options import Config, Count, Fraction, Positive, Scheduled
from rlplug_core.config.parse import convert, convert_with_schedules
from rlplug_core.config.schedules import constant, cosine, linear, parse_schedule, piecewise
from rlplug_core.config.schema import flat
from rlplug_core.errors import BadConfig
from rlplug_core.loop.plan import Plan
from rlplug_core.nets.forward import fast_forward
from rlplug_core.nets.net import Net
from rlplug_core.nets.policies import Critic, PolicyNetwork
from rlplug_core.runs.api import Run, resume, train
from rlplug_core.runs.checkpoint import Checkpoints
from rlplug_core.types import Result
from tests.core.fakes import ENVS, Tiny, TinyConfig, assert_same, make_runner
from tests.tables import for_each

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
def test_parses_schedules(text: str, schedule: Any, values: tuple[float, ...]) -> None:
    found = parse_schedule(text)
    assert found is not None
    assert found.text == text.strip()
    assert found.values == values
    for progress in (0.0, 0.1, 0.25, 0.5, 0.8, 1.0):
        assert found.schedule(progress) == schedule(progress)


@given(st.lists(st.tuples(UNIT, st.floats(-9, 9)), min_size=1, max_size=5, unique_by=lambda point: point[0]), UNIT)
def test_schedule_stays_within_its_values(points: list[tuple[float, float]], progress: float) -> None:
    """Bounds are checked only for these values."""
    found = parse_schedule("piecewise(" + ",".join(f"{a!r}:{b!r}" for a, b in points) + ")")
    assert found is not None
    slack = 1e-9
    assert min(found.values) - slack <= found.schedule(progress) <= max(found.values) + slack
    assert found.schedule(0.0) == found.values[0]


@for_each("value", [1e-3, None, "0.1", "fast", "linear", "linear 1,2", "log(1,2)", [1.0]])
def test_other_values_are_not_schedules(value: Any) -> None:
    assert parse_schedule(value) is None


@for_each("text", [
        "linear(1)", "linear(a,b)", "linear(1,2,0)", "linear(1,2,1.5)", "linear(1,2,3,4)", "constant()",
        "cosine(1,nan)", "constant(1,2)", "cosine(1,2,0.5)", "piecewise()", "piecewise(0.1)", "piecewise(0:1,0:2)",
        "piecewise(2:1)", "linear(inf,0)", "piecewise(0:1:2)",
    ])  # fmt: skip
def test_syntax_errors_show_the_syntax(text: str) -> None:
    with pytest.raises(BadConfig, match=r"is not a schedule; write constant\(a\), linear\(a,b\), .*piecewise\(0:a,"):
        parse_schedule(text)


# In configurations.


@dataclass(frozen=True)
class Inner:
    """A part."""

    share: Scheduled[Fraction] = 0.5  # a share


@dataclass(frozen=True)
class SomeConfig(Config):
    """Options."""

    learning_rate: Scheduled[Positive] = 1e-3  # the learning rate
    share: Scheduled[Fraction] = 0.5  # a share
    limit: Scheduled[Positive] | None = None  # a limit
    fixed: Positive = 1.0  # a number that is read once
    count: Count = 3  # a number
    flag: bool = False  # a switch
    word: str = ""  # any text
    sizes: tuple[float, ...] = ()  # numbers
    inner: Inner = Inner()


def test_config_has_the_first_value_of_a_schedule() -> None:
    values = {
        "learning_rate": "linear(1e-2,0)",
        "inner": {"share": "cosine(0.25,1)"},
        "limit": "constant(2)",
        "word": "linear(1,2)",
    }
    config, found = convert_with_schedules(SomeConfig, flat(values), "some")
    assert (config.learning_rate, config.inner.share, config.limit, config.word) == (1e-2, 0.25, 2.0, "linear(1,2)")
    assert {name: schedule.text for name, schedule in found.items()} == {
        "learning_rate": "linear(1e-2,0)",
        "inner.share": "cosine(0.25,1)",
        "limit": "constant(2)",
    }


@for_each(
    "name, text, sentence",
    [
        ("share", "linear(0.5,1.5)", "option 'share': expected `float` <= 1.0"),
        ("share", "piecewise(0:0.5,0.5:-1,1:0.5)", "option 'share': expected `float` >= 0.0"),
        ("inner.share", "linear(2,0.5)", "option 'inner.share': expected `float` <= 1.0"),
        ("learning_rate", "linear(0,1e-3)", "option 'learning_rate': expected `float` > 0.0"),
        ("learning_rate", "linear(1e-3,-1)", "option 'learning_rate': expected `float` > 0.0"),
        (
            "count",
            "linear(3,5)",
            "option 'count' cannot follow a schedule, give it a number; "
            "these can: learning_rate, share, limit, inner.share",
        ),
        ("fixed", "linear(1,2)", "option 'fixed' cannot follow a schedule, give it a number; these can: learning_rate"),
        ("flag", "linear(0,1)", "option 'flag' cannot follow a schedule"),
        ("sizes", "linear(0,1)", "option 'sizes' cannot follow a schedule"),
        ("learning_rate", "linear(1)", r"some: option 'learning_rate': 'linear\(1\)' is not a schedule"),
        ("wrong", "linear(1,2)", "some has no option 'wrong'"),
    ],
)
def test_bounds_hold_for_all_values_of_a_schedule(name: str, text: str, sentence: str) -> None:
    with pytest.raises(BadConfig, match=sentence):
        convert(SomeConfig, {name: text}, "some")


@pytest.mark.parametrize("value", [lambda progress: 1e-3, "linear:1e-3", "linear", [1e-3, 0.0]])
def test_errors_of_schedules_show_the_syntax(value: object) -> None:
    with pytest.raises(
        BadConfig, match=r"'learning_rate': expected `float`, got .*; a schedule is a string of the form constant"
    ):
        convert(SomeConfig, {"learning_rate": value}, "some")
    with pytest.raises(BadConfig, match=r"'fixed': expected `float`, got `\w+` \('rlplug info some'"):
        convert(SomeConfig, {"fixed": value}, "some")


def test_error_names_that_no_option_can_follow_a_schedule() -> None:
    @dataclass(frozen=True)
    class Plain(Config):
        size: Positive = 1.0  # a size

    with pytest.raises(BadConfig, match=r"plain: option 'size' cannot follow .* these can: none of its options"):
        convert(Plain, {"size": "constant(1)"}, "plain")


def test_at_returns_the_current_values() -> None:
    config = convert(SomeConfig, {"learning_rate": "linear(1,0)", "inner.share": "linear(0,1)"}, "some")
    clock = Clock(100, steps=25)
    assert config.at(clock) == SomeConfig(learning_rate=0.75, inner=Inner(0.25))
    assert config == SomeConfig(learning_rate=1.0, inner=Inner(0.0))  # unchanged


def test_at_without_schedules_returns_the_config() -> None:
    config = convert(SomeConfig, {"learning_rate": 0.5}, "some")
    assert config.at(Clock(100)) is config


def test_config_with_a_schedule_has_repr_equality_and_copy() -> None:
    config = convert(SomeConfig, {"learning_rate": "linear(1,0)"}, "some")
    assert "learning_rate=1.0" in repr(config)
    assert config == convert(SomeConfig, {"learning_rate": "linear(1,0)"}, "some")
    assert copy.deepcopy(config).at(Clock(2, steps=1)).learning_rate == 0.5


@dataclass(frozen=True, slots=True)
class Tight(Config):
    """A configuration with slots."""

    share: Scheduled[Fraction] = 0.5  # between 0 and 1


def test_class_with_slots_can_follow_schedules() -> None:
    assert convert(Tight, {"share": "linear(0,1)"}, "tight").at(Clock(2, steps=1)).share == 0.5


@dataclass(frozen=True)
class Foreign:
    """A configuration that is not a `Config`."""

    share: Scheduled[Fraction] = 0.5  # between 0 and 1


def test_schedule_outside_a_config_raises() -> None:
    with pytest.raises(
        BadConfig, match=r"x: option 'share' cannot follow a schedule: Foreign is not an rlplug_core.Config"
    ):
        convert(Foreign, {"share": "linear(0,1)"}, "x")


# In learners.


@dataclass(frozen=True)
class ScheduledTinyConfig(TinyConfig):
    """Options of ScheduledTiny."""

    learning_rate: Scheduled[Positive] = 1e-2  # learning rate


class ScheduledTiny(Tiny):
    """Tiny with a learning rate that can follow a schedule."""

    Config = ScheduledTinyConfig

    def build(self) -> None:
        self.policy = PolicyNetwork(self.spec, self.config.net)
        self.critic = Critic(self.spec, self.config.net)
        self.optim = self.optimizer(
            "actor_critic", [self.policy, self.critic], learning_rate=self.schedule("learning_rate"), max_grad_norm=0.5
        )
        self.values = fast_forward(self.critic, self.inference_backend)


@dataclass(frozen=True)
class LateConfig(Config):
    """Options; two of them can follow a schedule."""

    n_steps: Count = 4  # rollout length
    learning_rate: Scheduled[Positive] = 1e-2  # learning rate
    built: Fraction = 0.1  # read in build
    used: Scheduled[Fraction] = 0.1  # read in updates


class Late(Algorithm[Rollout]):
    """Records the value of an option in each update."""

    Config = LateConfig
    config: LateConfig

    def build(self) -> None:
        self.policy = PolicyNetwork(self.spec, Net(hidden=(4,)))
        self.optim = self.optimizer("policy", [self.policy], learning_rate=self.schedule("learning_rate"))
        self.used: list[float] = []

    def agent(self, rank: int = 0, ranks: int = 1) -> Any:
        return PolicyAgent(self.policy, self.agent_seeds(rank), self.inference_backend)

    def buffer(self) -> Any:
        return RolloutBuffer(self.config.n_steps)

    def learn(self, batch: Rollout, now: LateConfig, clock: Clock) -> Result:
        self.used.append(now.used)
        return Result({})


def test_updates_get_the_current_value() -> None:
    runner = make_runner(
        f"{FILE}:Late", total_timesteps=40, num_envs=2, used="linear(1,0)", learning_rate="linear(1e-2,0)"
    )
    runner.run(lambda: None)
    assert runner.learner.used == pytest.approx([1 - done / 40 for done in (8, 16, 24, 32, 40)])
    assert runner.learner.optim.learning_rate(0.5) == 5e-3


def test_schedule_of_an_option_that_is_read_once_raises(tmp_path: Path) -> None:
    """The error comes from the parser, before anything is written."""
    with pytest.raises(BadConfig, match="Late: option 'built' cannot follow a schedule, give it a number; these can: "):
        train(f"{FILE}:Late", f"{ENVS}:Chain", {"built": "linear(0.5,0)"}, out=tmp_path / "runs", hooks=False)
    assert not (tmp_path / "runs").exists()


def test_schedule_overrides_anneal() -> None:
    learner = make_runner(f"{FILE}:Late").learner
    assert [learner.schedule("learning_rate", anneal)(0.5) for anneal in (False, True)] == [1e-2, 5e-3]
    learner = make_runner(f"{FILE}:Late", learning_rate="cosine(1e-2,1e-4)").learner
    assert [learner.schedule("learning_rate", anneal)(1.0) for anneal in (False, True)] == pytest.approx([1e-4, 1e-4])


def test_plan_keeps_the_text_of_schedules() -> None:
    plan = Plan.make(f"{FILE}:Late", f"{ENVS}:Chain", {"used": " linear(1, 0) ", "seed": 4})
    assert plan.config.used == 1.0
    assert (plan.flat["used"], plan.flat["learning_rate"]) == ("linear(1, 0)", 1e-2)
    assert Plan.make(plan.algorithm, plan.env, plan.flat).flat == plan.flat


def test_schedule_of_a_run_option_raises() -> None:
    with pytest.raises(BadConfig, match="option 'worker_timeout' cannot follow a schedule"):
        Plan.make(f"{FILE}:Late", f"{ENVS}:Chain", {"worker_timeout": "linear(1,2)"})


@pytest.mark.parametrize("options", [{"runner": "sync"}, {"runner": "async", "inline": True}], ids=["sync", "async"])
def test_resumed_run_follows_the_same_schedule(options: dict[str, Any], tmp_path: Path) -> None:
    """A resumed run has the weights, moments, clock and generators of an uninterrupted one."""
    given = {
        "total_timesteps": 240,
        "num_envs": 2,
        "learning_rate": "cosine(1e-1,1e-3)",
        "final_eval_episodes": 0,
        "eval_episodes": 1,
    }
    word, env = f"{FILE}:ScheduledTiny", f"{ENVS}:Chain"
    whole = train(word, env, {**given, **options}, out=tmp_path, name="whole", hooks=False)
    part = train(word, env, {**given, **options, "max_episodes": 15}, out=tmp_path, name="part", hooks=False)
    assert state(part)[0] < 240
    resume(part, total_timesteps=240, hooks=False)
    for expected, found in zip(state(whole), state(part), strict=True):
        assert_same(expected, found)
    assert whole.config["options"]["learning_rate"] == "cosine(1e-1,1e-3)"
    constant = train(word, env, {**given, **options, "learning_rate": 0.1}, out=tmp_path, name="constant", hooks=False)
    with pytest.raises(AssertionError):
        assert_same(state(whole)[1], state(constant)[1])


def state(run: Run) -> tuple[int, Any, Any]:
    """Return the step of a run's final checkpoint, the state of its learner and that of its other components."""
    saved, components, _, _ = Checkpoints(run.path / "checkpoints").load(("final",))
    return saved.step, components["learner"], [components.get(name) for name in ("clock", "actor", "workers", "buffer")]
