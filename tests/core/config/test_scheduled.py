"""Numbers that follow schedules: how they are written, held in range, followed, and refused where they cannot be."""

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
from rlplug_core.config.schedules import constant, cosine, linear, piecewise, schedule_text
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
def test_a_schedule_is_what_is_written(text: str, schedule: Any, values: tuple[float, ...]) -> None:
    found = schedule_text(text)
    assert found is not None
    assert found.text == text.strip()
    assert found.values == values
    for progress in (0.0, 0.1, 0.25, 0.5, 0.8, 1.0):
        assert found.schedule(progress) == schedule(progress)


@given(st.lists(st.tuples(UNIT, st.floats(-9, 9)), min_size=1, max_size=5, unique_by=lambda point: point[0]), UNIT)
def test_no_point_lies_outside_the_values(points: list[tuple[float, float]], progress: float) -> None:
    """So that bounds which hold for these hold throughout."""
    found = schedule_text("piecewise(" + ",".join(f"{a!r}:{b!r}" for a, b in points) + ")")
    assert found is not None
    slack = 1e-9
    assert min(found.values) - slack <= found.schedule(progress) <= max(found.values) + slack
    assert found.schedule(0.0) == found.values[0]


@for_each("value", [1e-3, None, "0.1", "fast", "linear", "linear 1,2", "log(1,2)", [1.0]])
def test_other_values_are_no_schedules(value: Any) -> None:
    assert schedule_text(value) is None


@for_each("text", [
        "linear(1)", "linear(a,b)", "linear(1,2,0)", "linear(1,2,1.5)", "linear(1,2,3,4)", "constant()",
        "cosine(1,nan)", "constant(1,2)", "cosine(1,2,0.5)", "piecewise()", "piecewise(0.1)", "piecewise(0:1,0:2)",
        "piecewise(2:1)", "linear(inf,0)", "piecewise(0:1:2)",
    ])  # fmt: skip
def test_syntax_errors_show_the_syntax(text: str) -> None:
    with pytest.raises(BadConfig, match=r"is not a schedule; write constant\(a\), linear\(a,b\), .*piecewise\(0:a,"):
        schedule_text(text)


# In configurations.


@dataclass(frozen=True)
class Inner:
    """A part."""

    share: Scheduled[Fraction] = 0.5  # a share


@dataclass(frozen=True)
class Some(Config):
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


def test_a_configuration_holds_the_start() -> None:
    values = {
        "learning_rate": "linear(1e-2,0)",
        "inner": {"share": "cosine(0.25,1)"},
        "limit": "constant(2)",
        "word": "linear(1,2)",
    }
    config, found = convert_with_schedules(Some, flat(values), "some")
    assert (config.learning_rate, config.inner.share, config.limit, config.word) == (1e-2, 0.25, 2.0, "linear(1,2)")
    assert {name: one.text for name, one in found.items()} == {
        "learning_rate": "linear(1e-2,0)", "inner.share": "cosine(0.25,1)", "limit": "constant(2)"
    }  # fmt: skip


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
def test_bounds_hold_from_beginning_to_end(name: str, text: str, sentence: str) -> None:
    with pytest.raises(BadConfig, match=sentence):
        convert(Some, {name: text}, "some")


@pytest.mark.parametrize("value", [lambda progress: 1e-3, "linear:1e-3", "linear", [1e-3, 0.0]])
def test_errors_of_schedules_show_the_syntax(value: object) -> None:
    with pytest.raises(
        BadConfig, match=r"'learning_rate': expected `float`, got .*; a schedule is a string of the form constant"
    ):
        convert(Some, {"learning_rate": value}, "some")
    with pytest.raises(BadConfig, match=r"'fixed': expected `float`, got `\w+` \('rlplug info some'"):
        convert(Some, {"fixed": value}, "some")


def test_where_nothing_may_follow_the_sentence_says_so() -> None:
    @dataclass(frozen=True)
    class Plain(Config):
        size: Positive = 1.0  # a size

    with pytest.raises(BadConfig, match=r"plain: option 'size' cannot follow .* these can: none of its options"):
        convert(Plain, {"size": "constant(1)"}, "plain")


def test_values_at_a_moment() -> None:
    config = convert(Some, {"learning_rate": "linear(1,0)", "inner.share": "linear(0,1)"}, "some")
    clock = Clock(100, steps=25)
    assert config.at(clock) == Some(learning_rate=0.75, inner=Inner(0.25))
    assert config == Some(learning_rate=1.0, inner=Inner(0.0))  # what it is itself stays the beginning


def test_without_schedules_the_moment_is_the_configuration_itself() -> None:
    config = convert(Some, {"learning_rate": 0.5}, "some")
    assert config.at(Clock(100)) is config


def test_a_configuration_with_a_schedule_is_shown_and_compared() -> None:
    config = convert(Some, {"learning_rate": "linear(1,0)"}, "some")
    assert "learning_rate=1.0" in repr(config)
    assert config == convert(Some, {"learning_rate": "linear(1,0)"}, "some")
    assert copy.deepcopy(config).at(Clock(2, steps=1)).learning_rate == 0.5


@dataclass(frozen=True, slots=True)
class Tight(Config):
    """A configuration with slots."""

    share: Scheduled[Fraction] = 0.5  # between 0 and 1


def test_a_class_with_slots_is_refused_with_the_way_out() -> None:
    """It has no place for schedules, unless its base has one."""
    assert convert(Tight, {"share": "linear(0,1)"}, "tight").at(Clock(2, steps=1)).share == 0.5


@dataclass(frozen=True)
class Foreign:
    """A configuration that is no `Config`."""

    share: Scheduled[Fraction] = 0.5  # between 0 and 1


def test_values_that_are_not_configs_follow_no_schedule() -> None:
    with pytest.raises(
        BadConfig, match=r"x: option 'share' cannot follow a schedule: Foreign is not an rlplug_core.Config"
    ):
        convert(Foreign, {"share": "linear(0,1)"}, "x")


# In learners.


@dataclass(frozen=True)
class SteppedConfig(TinyConfig):
    """Options of Stepped."""

    learning_rate: Scheduled[Positive] = 1e-2  # learning rate


class Stepped(Tiny):
    """Tiny with a learning rate that may follow a schedule."""

    Config = SteppedConfig

    def build(self) -> None:
        self.policy, self.critic = PolicyNetwork(self.spec, self.config.net), Critic(self.spec, self.config.net)
        self.optim = self.optimizer(
            "actor_critic", [self.policy, self.critic], learning_rate=self.schedule("learning_rate"), max_grad_norm=0.5
        )
        self.values = fast_forward(self.critic, self.inference_backend)


@dataclass(frozen=True)
class LateConfig(Config):
    """Options of which two may follow a schedule."""

    n_steps: Count = 4  # rollout length
    learning_rate: Scheduled[Positive] = 1e-2  # learning rate
    built: Fraction = 0.1  # read in build
    used: Scheduled[Fraction] = 0.1  # read in updates


class Late(Algorithm[Rollout]):
    """Writes down what an option is in every update."""

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


def test_updates_see_the_value_of_their_moment() -> None:
    runner = make_runner(
        f"{FILE}:Late", total_timesteps=40, num_envs=2, used="linear(1,0)", learning_rate="linear(1e-2,0)"
    )
    runner.run(lambda: None)
    assert runner.learner.used == pytest.approx([1 - done / 40 for done in (8, 16, 24, 32, 40)])
    assert runner.learner.optim.learning_rate(0.5) == 5e-3


def test_options_that_are_read_once_cannot_follow(tmp_path: Path) -> None:
    """Refused when options are parsed, before anything is written: nothing stays constant in silence."""
    with pytest.raises(BadConfig, match="Late: option 'built' cannot follow a schedule, give it a number; these can: "):
        train(f"{FILE}:Late", f"{ENVS}:Chain", {"built": "linear(0.5,0)"}, out=tmp_path / "runs", hooks=False)
    assert not (tmp_path / "runs").exists()


def test_learning_rates() -> None:
    """A schedule takes the place of `anneal`."""
    learner = make_runner(f"{FILE}:Late").learner
    assert [learner.schedule("learning_rate", anneal)(0.5) for anneal in (False, True)] == [1e-2, 5e-3]
    learner = make_runner(f"{FILE}:Late", learning_rate="cosine(1e-2,1e-4)").learner
    assert [learner.schedule("learning_rate", anneal)(1.0) for anneal in (False, True)] == pytest.approx([1e-4, 1e-4])


def test_the_plan_keeps_what_was_written() -> None:
    plan = Plan.make(f"{FILE}:Late", f"{ENVS}:Chain", {"used": " linear(1, 0) ", "seed": 4})
    assert plan.config.used == 1.0
    assert (plan.flat["used"], plan.flat["learning_rate"]) == ("linear(1, 0)", 1e-2)
    assert Plan.make(plan.algorithm, plan.env, plan.flat).flat == plan.flat


def test_run_options_follow_no_schedule() -> None:
    with pytest.raises(BadConfig, match="option 'worker_timeout' cannot follow a schedule"):
        Plan.make(f"{FILE}:Late", f"{ENVS}:Chain", {"worker_timeout": "linear(1,2)"})


@pytest.mark.parametrize("options", [{"runner": "sync"}, {"runner": "async", "inline": True}], ids=["sync", "async"])
def test_stopped_and_resumed_it_follows_the_same_line(options: dict[str, Any], tmp_path: Path) -> None:
    """Weights, moments, clock and generators of a run that was stopped and one that never was."""
    given = {
        "total_timesteps": 240,
        "num_envs": 2,
        "learning_rate": "cosine(1e-1,1e-3)",
        "final_eval_episodes": 0,
        "eval_episodes": 1,
    }
    word, env = f"{FILE}:Stepped", f"{ENVS}:Chain"
    whole = train(word, env, {**given, **options}, out=tmp_path, name="whole", hooks=False)
    part = train(word, env, {**given, **options, "max_episodes": 15}, out=tmp_path, name="part", hooks=False)
    assert state(part)[0] < 240
    resume(part, total_timesteps=240, hooks=False)
    for one, other in zip(state(whole), state(part), strict=True):
        assert_same(one, other)
    assert whole.config["options"]["learning_rate"] == "cosine(1e-1,1e-3)"
    constant = train(word, env, {**given, **options, "learning_rate": 0.1}, out=tmp_path, name="constant", hooks=False)
    with pytest.raises(AssertionError):
        assert_same(state(whole)[1], state(constant)[1])


def state(run: Run) -> tuple[int, Any, Any]:
    """The step of a run's final checkpoint, its learner and the rest of what training goes on from."""
    saved, components, _, _ = Checkpoints(run.path / "checkpoints").load(("final",))
    return saved.step, components["learner"], [components.get(name) for name in ("clock", "actor", "workers", "buffer")]
