"""The wrappers of `--wrap` are used in training, evaluation, workers, resumes and loaded policies."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlplug_core import plugins
from rlplug_core.config.parse import parse
from rlplug_core.config.run_options import RunOptions
from rlplug_core.config.schema import schema
from rlplug_core.errors import BadConfig, Interrupted, PluginError, UsageError
from rlplug_core.loop.plan import Plan
from rlplug_core.plugins import index, indexing
from rlplug_core.plugins.env_base import complete
from rlplug_core.plugins.spec import WrapperSpec, close_on_error, wrap_env
from rlplug_core.plugins.transform import Transform
from rlplug_core.protocols import Env
from rlplug_core.runs.api import Run, load, resume, train
from rlplug_core.runs.checkpoint import Checkpoints
from rlplug_core.runs.directory import RunDirectory
from rlplug_core.testing.distributions import write_distribution
from rlplug_core.testing.envs import Chain
from rlplug_core.types import Array
from tests.core.fakes import ENVS, TINY, assert_same, countdown
from tests.core.runs.final import final_weights
from tests.core.wraps import HERE
from tests.tables import for_each

CHAIN = f"{ENVS}:Chain"
AGED, TENFOLD = f"{HERE}:Aged", f"{HERE}:Tenfold"
OPTIONS: dict[str, Any] = {
    "seed": 3, "num_envs": 2, "total_timesteps": 120, "runner": "sync", "eval_episodes": 5, "final_eval_episodes": 5,
    "wrap": [TENFOLD, f"{AGED}:step=0.5"],
}  # fmt: skip


def train_run(out: Path, name: str = "run", **options: Any) -> Run:
    return train(TINY, CHAIN, {**OPTIONS, **options}, out=out, name=name, hooks=False)


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train_run(tmp_path_factory.mktemp("runs"))


# Parsing.


@for_each(
    "options, values",
    [
        ("", {"step": 0.1, "name": "x", "sizes": (1, 2)}),
        (":step=2", {"step": 2.0}),
        (":step=2,name=y", {"step": 2.0, "name": "y"}),
        (":name=a:b=c", {"name": "a:b=c"}),
        (":sizes=3,4,5,name=z", {"sizes": (3, 4, 5), "name": "z"}),
        (":step=2,step=3", {"step": 3.0}),
    ],
)
@for_each("name", [AGED, "tests.core.wraps:Aged"])
def test_parses_options_after_the_name(name: str, options: str, values: dict[str, Any]) -> None:
    spec = WrapperSpec.parse(name + options)
    assert {key: getattr(spec.config, key) for key in values} == values
    assert spec.words == name + options


def test_relative_path_becomes_absolute(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resume finds it from another directory."""
    monkeypatch.chdir(HERE.parent)
    assert WrapperSpec.parse("./wraps.py:Aged:step=2").words == f"{AGED}:step=2"
    assert Plan.make(TINY, CHAIN, {"wrap": ["./wraps.py:Aged"]}).flat["wrap"] == [AGED]


@for_each(
    "argument, error, message",
    [
        (
            f"{AGED}:steps=2",
            BadConfig,
            r"has no option 'steps'; did you mean 'step'.*\? \('rlplug info .*wraps.py:Aged",
        ),
        (f"{AGED}:step=x", BadConfig, r"option 'step': expected `float`, got `str`"),
        (f"{AGED}:step=-1", BadConfig, r"option 'step': expected `float` > 0"),
        (f"{TENFOLD}:factor=2", BadConfig, r"has no option 'factor'"),
        ("frame-stack:4", UsageError, r"'frame-stack:4': options are written NAME:option=value"),
        ("frame-stack:", UsageError, r"options are written NAME:option=value"),
        ("", UsageError, r"no wrapper '' is installed"),
        ("tenfould", UsageError, r"no wrapper 'tenfould' is installed \('rlplug list' shows all\)"),
        ("nothing.here:Aged", UsageError, r"there is no module 'nothing'"),
        (
            f"{HERE}:OnlyStep",
            PluginError,
            r"wraps.py:OnlyStep' is not a wrapper: it has no 'reset', 'close', 'state_dict'",
        ),
        (f"{HERE}:HALVES", PluginError, r"is not a class; a wrapper must be one"),
    ],
)
def test_invalid_arguments_raise(argument: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Plan.make(TINY, CHAIN, {"wrap": [argument]})


class Closable(Chain):
    """Records that it is closed."""

    closed = False

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "CannotBuild",
            r"wrapper '.*CannotBuild' cannot be put around Closable: ValueError: not today; --traceback shows",
        ),
        ("NoSpec", r"wrapper '.*NoSpec' made no environment: it has no 'spec'"),
    ],
)
def test_failing_wrapper_is_named_and_environments_close(name: str, message: str) -> None:
    env = Closable(2)
    inner = WrapperSpec.parse(f"{HERE}:RecordsClose")
    lasting: Any = inner.wrapper
    lasting.closed.clear()
    with pytest.raises(PluginError, match=message):
        wrap_env(env, [inner, WrapperSpec.parse(f"{HERE}:{name}")])
    assert env.closed
    assert lasting.closed == [env.spec.id]


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_closes_environment_on_error(error: type[BaseException]) -> None:
    env = Closable(2)
    with close_on_error(env):
        pass
    assert not env.closed
    with pytest.raises(error), close_on_error(env):
        raise error
    assert env.closed


def test_option_is_repeated_because_values_have_commas() -> None:
    (option,) = (option for option in schema(RunOptions) if option.name == "wrap")
    assert option.type == "repeated"
    assert parse(option, "a:x=1,y=2") == ["a:x=1,y=2"]
    assert parse(option, "none") == []


# Runs.


def test_first_wrapper_is_innermost() -> None:
    plan = Plan.make(TINY, CHAIN, {"wrap": [AGED, TENFOLD]})
    env: Any = plan.make_env(3)
    assert [type(layer).__name__ for layer in (env, env.env, env.env.env)] == ["Tenfold", "Aged", "Chain"]
    assert (env.spec.num_envs, env.spec.obs.shape) == (3, (6,))


def test_plan_from_its_values_is_equal() -> None:
    """Workers and resumes make such plans."""
    plan = Plan.make(TINY, CHAIN, OPTIONS)
    copy = Plan.make(plan.algorithm, plan.env, plan.flat)
    assert [spec.words for spec in copy.wrappings] == [spec.words for spec in plan.wrappings]
    assert [spec.config for spec in copy.wrappings] == [spec.config for spec in plan.wrappings]
    assert copy.flat == plan.flat


def test_training_and_evaluation_use_the_wrappers(finished_run: Run) -> None:
    """Six features instead of five; the returns, from 0 to 1, are those of the environment."""
    assert finished_run.config["options"]["wrap"] == [TENFOLD, f"{AGED}:step=0.5"]
    assert finished_run.config["origins"]["wrap"] == "option"
    weights = final_weights(finished_run)
    assert any(np.shape(leaf)[-1:] == (6,) for leaf in _leaves(weights))
    assert set(finished_run.evaluate(20).returns) <= {0.0, 1.0}


def _leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, dict | list):
        for value in tree.values() if isinstance(tree, dict) else tree:
            yield from _leaves(value)
    else:
        yield tree


def test_resumed_run_is_exact(finished_run: Run, tmp_path: Path) -> None:
    sys.modules[plugins.algorithm(TINY).__module__].countdown[0] = 7
    with pytest.raises(Interrupted):
        train_run(tmp_path)
    countdown[0] = 0
    run = resume(Run(RunDirectory.open(tmp_path / "run")), hooks=False)
    paths = [each.directory.checkpoints_path for each in (finished_run, run)]
    expected, resumed = (Checkpoints(path).load(["final"])[1] for path in paths)
    for component in ("learner", "actor", "buffer", "clock"):
        assert_same(expected[component], resumed[component])
    assert "age" in expected["actor"]["env"]


@pytest.mark.parametrize("inline", [True, False])
def test_workers_use_the_wrappers(tmp_path: Path, inline: bool) -> None:
    run = train_run(tmp_path, runner="async", inline=inline, workers=2)
    assert run.status == "finished"
    components = Checkpoints(run.directory.checkpoints_path).load(["final"])[1]
    assert any(np.shape(leaf)[-1:] == (6,) for leaf in _leaves(components["learner"]))


def test_loaded_policy_takes_unwrapped_observations(finished_run: Run) -> None:
    """The wrappers process them in turn, until `reset` starts an episode."""
    policy = load(finished_run)
    obs = np.eye(5, dtype=np.float32)
    actions = [policy(row) for row in obs]
    assert all(np.shape(action) == () for action in actions)
    aged: Any = policy._env
    assert aged.age.tolist() == [2.0]
    policy.reset()
    policy(obs[0])
    assert aged.age.tolist() == [0.0]


# The base.


class Everything(Chain):
    """Has all methods that a wrapper forwards."""

    max_steps = 0

    def limit(self, steps: int) -> None:
        self.max_steps = steps

    def translate(self, action: Array) -> Array:
        return action + 5


class Plain(Transform):
    """Changes nothing."""


class Bare:
    """An environment that inherits nothing and has one optional method."""

    def __init__(self) -> None:
        self.spec = Chain(2).spec

    def translate(self, action: Array) -> object:
        return action + 5


def test_completes_environment_without_base_class() -> None:
    bare: Any = Bare()
    env = complete(bare)
    assert env.translate(np.zeros(1)).tolist() == [5]  # type: ignore[attr-defined]
    assert env.source is env.spec is bare.spec
    assert env.action_space is bare.spec.action
    assert env.info("lives") == [None, None]
    assert env.learned() == {}
    assert env.threads == 0
    with pytest.raises(UsageError, match="has no frames to show"):
        env.show(lambda opens, render: None)
    with pytest.raises(UsageError, match="cannot have 'level' set"):
        env.configure({"level": 1})
    complete_env = Plain(Chain(2))
    assert complete(complete_env) is complete_env


def test_transform_forwards_all_methods() -> None:
    inner = Everything(2)
    env = Plain(Plain(inner))
    assert isinstance(env, Env)
    timestep = env.reset(1)
    assert timestep.is_first.all()
    np.testing.assert_array_equal(env.step(np.ones(2, np.int64)).obs, inner.observe())
    env.limit(7)
    assert inner.max_steps == 7
    assert env.translate(np.zeros(1)).tolist() == [5]
    assert env.source is inner.spec
    obs = np.zeros((3, 5))
    assert env.observe(obs, np.zeros(3, np.bool_)) is obs
    fresh = Plain(Plain(Everything(2)))
    fresh.load_state_dict(env.state_dict())
    np.testing.assert_array_equal(fresh.step(np.ones(2, np.int64)).obs, env.step(np.ones(2, np.int64)).obs)


def test_transform_of_environment_without_optional_methods() -> None:
    env = Plain(Chain(2))
    action = np.zeros(2)
    assert env.translate(action) is action
    with pytest.raises(UsageError, match="Chain cannot cut its episodes after a number of steps"):
        env.limit(3)


# As a plugin.


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    points = {
        "rlplug.wrappers": {"aged": "rlplug_aged.aged:Aged", "broken": "rlplug_aged.broken:Broken"},
        "rlplug.envs": {"aged-too": "rlplug_aged.aged:Aged"},
    }
    reserved = "seed: int = 0  # a name that belongs to every run\n    step: Positive"
    code = HERE.read_text(encoding="utf-8").replace("step: Positive", reserved)
    files = {"rlplug_aged/__init__.py": "", "rlplug_aged/aged.py": code, "rlplug_aged/broken.py": "def broken(:"}
    write_distribution(tmp_path, "rlplug-aged", points, files)
    plugins.refresh()
    yield tmp_path
    monkeypatch.undo()
    for name in [name for name in sys.modules if name.startswith("rlplug_aged")]:
        del sys.modules[name]
    plugins.refresh()


def test_index_describes_wrapper_without_import(site: Path) -> None:
    record = plugins.find("wrappers", "aged")
    assert indexing.write(record) == site / "rlplug_aged" / "index" / "aged.json"
    del sys.modules["rlplug_aged.aged"]
    found, reason = index.read(record)
    assert (found is not None, reason) == (True, "")
    assert "rlplug_aged.aged" not in sys.modules
    assert found.summary == "Appends the age of the episode to observations: a wrapper with options and a state."
    code: Any = plugins.wrapper("aged")
    assert index.options(found) == schema(code.Config)
    assert indexing.drift(record) == ""


def test_wrapper_may_have_options_of_runs(site: Path) -> None:
    """Its options follow its name."""
    assert WrapperSpec.parse("aged:seed=3").config.seed == 3
    assert index.read(plugins.find("wrappers", "aged"))[1] == "it has no index"
    indexing.write(plugins.find("wrappers", "aged"))
    assert index.read(plugins.find("wrappers", "aged"))[1] == ""


def test_two_plugins_of_one_name_cannot_share_an_index(site: Path) -> None:
    points = site / "rlplug_aged-1.0.dist-info" / "entry_points.txt"
    points.write_text(points.read_text().replace("aged-too", "aged"))
    plugins.refresh()
    with pytest.raises(PluginError, match=r"and the environment provider of its name need the same aged\.json"):
        indexing.write(plugins.find("wrappers", "aged"))


@pytest.mark.parametrize(
    ("environment", "name", "message"),
    [
        ({}, "broken", r"wrapper 'broken' of rlplug-aged 1.0 cannot be loaded: SyntaxError"),
        (
            {"RLPLUG_DISABLED_PLUGINS": "aged"},
            "aged",
            r"wrapper 'aged' of rlplug-aged 1.0 is disabled: 'aged' is disab",
        ),
        ({"RLPLUG_PLUGINS": ""}, "rlplug-aged/aged", r"is disabled: RLPLUG_PLUGINS does not list it; remove it there"),
    ],
)
def test_unusable_wrapper_raises(
    site: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], name: str, message: str
) -> None:
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    plugins.refresh()
    with pytest.raises(PluginError, match=message) as caught:
        Plan.make(TINY, CHAIN, {"wrap": [name]})
    assert caught.value.exit_code == 3
