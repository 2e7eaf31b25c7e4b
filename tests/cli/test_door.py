"""Environments as names, classes, functions, objects and vectors: how runs record and rebuild them."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlplug_core import load, open_run, resume, train
from rlplug_core.errors import PluginError, UsageError
from rlplug_core.plugins.env_kind import kind_for
from rlplug_core.plugins.env_source import EnvSource, source_of
from tests.cli.conftest import Result
from tests.cli.warm import Fork

#: Options that make a run take about a second.
BRIEF = {"total_timesteps": 96, "n_steps": 8, "eval_every": 48, "eval_episodes": 2, "final_eval_episodes": 2}
CODE = """
import gymnasium, numpy as np
from gymnasium import spaces
class Count(gymnasium.Env):
    observation_space, action_space = spaces.Box(0.0, 1.0, (1,), np.float32), spaces.Discrete(2)
    def __init__(self, length=5, table=None):
        self.length, self.table = length, table
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}
    def step(self, action):
        self.time += 1
        return np.full(1, self.time / 100, np.float32), float(action), self.time >= self.length, False, {}
def make_single(length=5):
    return Count(length)
def many(num_envs, length=5):
    return gymnasium.vector.SyncVectorEnv([lambda: Count(length)] * num_envs)
def eight(length=5):
    return many(8, length)
"""


class Count(gymnasium.Env[Any, Any]):
    """Episodes of a given length; counts the steps and whether it was closed."""

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, length: int = 5) -> None:
        self.length = length
        self.steps = 0
        self.closed = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time = self.time + 1
        self.steps = self.steps + 1
        return np.zeros(1, np.float32), float(action), self.time >= self.length, False, {}

    def close(self) -> None:
        self.closed = True


class Bound(Count):
    """Cannot be copied, like an object with a connection."""

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("a socket has no copy")


def make_many(num_envs: int, length: int = 5) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
    return gymnasium.vector.SyncVectorEnv([lambda: Count(length)] * num_envs)


@pytest.fixture
def mine(place: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file with environments in the working directory; MLflow is disabled."""
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    (place / "mine.py").write_text(CODE)
    return "./mine.py"


def train_briefly(env: Any, /, algorithm: str = "ppo", **options: Any) -> Any:
    return train(algorithm, env, {**BRIEF, **options}, hooks=False)


@pytest.mark.parametrize("form", ["Count", "make_single", "many"])
def test_later_processes_rebuild_a_name_with_arguments(form: str, mine: str, place: Path) -> None:
    """From the run's copy of the file: the file itself is deleted."""
    run = train_briefly(f"{mine}:{form}", num_envs=2, env={"length": 7})
    (place / "mine.py").unlink()
    assert open_run(run.path).evaluate(2).lengths == (7, 7)
    assert run.evaluate(2, arguments={"length": 4}).lengths == (4, 4)
    assert load(run.path)(np.zeros(1, np.float32)) in (0, 1)
    assert set(resume(run.path, total_timesteps=160, hooks=False).episodes()["lengths"]) == {7}


@pytest.mark.parametrize("form", [Count, make_many, functools.partial(Count, length=6)])
def test_run_records_the_names_of_classes_and_functions(form: Any, mine: str) -> None:
    run = train_briefly(form)
    assert "unnamed" not in run.config
    assert run.config["env"] == f"{__name__}:{'make_many' if form is make_many else 'Count'}"
    assert open_run(run.path).evaluate(2).lengths == ((6, 6) if isinstance(form, functools.partial) else (5, 5))


def test_workers_make_environments_with_the_arguments(mine: str) -> None:
    run = train_briefly(f"{mine}:many", "a3c", runner="async", workers=2, n_steps=4, env={"length": 3})
    assert set(run.episodes()["lengths"]) == {3}


@pytest.mark.parametrize(
    "make", [lambda: Count(4), lambda: make_many(3, 4), lambda: gymnasium.wrappers.TimeLimit(Count(), 4)]
)
def test_object_is_trained_itself_and_evaluated_in_copies(make: Callable[[], Any], mine: str) -> None:
    env = make()
    run = train_briefly(env)
    single = getattr(env, "envs", [env])[0].unwrapped
    assert run.options["num_envs"] == getattr(env, "num_envs", 1)
    assert single.steps == 96 // run.options["num_envs"]
    assert not single.closed
    assert set(run.evaluate(3).lengths) == {4}
    with pytest.raises(
        UsageError, match=r"an object of this process, .*; give it again in Python: resume\(.*, env=…\)"
    ):
        resume(run.path, total_timesteps=160, hooks=False)
    assert resume(run.path, env=make(), total_timesteps=160, hooks=False).summary().steps >= 160
    assert load(run.path, env=make()).action_space == spaces.Discrete(2)


def test_object_that_cannot_be_copied_needs_eval_env(mine: str) -> None:
    with pytest.raises(UsageError, match=r"cannot be copied \(TypeError: a socket has no copy\); .*eval_env"):
        train_briefly(Bound())
    run = train_briefly(Bound(4), eval_env=Count)
    assert run.options["eval_env"] == f"{__name__}:Count"
    assert run.evaluate(2).lengths == (5, 5)


def test_lambda_trains_only_in_this_process(mine: str) -> None:
    run = train_briefly(lambda: Count(4))
    assert run.evaluate(2).lengths == (4, 4)
    with pytest.raises(UsageError, match=r"trained in lambda, a lambda, which no other process can import"):
        open_run(run.path).evaluate(2)
    assert open_run(run.path, env=lambda: Count(6)).evaluate(2).lengths == (6, 6)
    with pytest.raises(UsageError, match=r"each worker makes its own environments, .* use --inline"):
        train_briefly(lambda: Count(4), "a3c", runner="async", workers=2)
    with pytest.raises(UsageError, match=r"each worker makes its own environments, .* leave out --learners"):
        train_briefly(lambda: Count(4), learners=2)
    assert train_briefly(lambda: Count(4), "a3c", runner="async", inline=True).evaluate(2).lengths == (4, 4)
    with pytest.raises(UsageError, match=r"each worker makes its own environments, .* use --runner sync"):
        train_briefly(Count(4), "a3c", runner="async", inline=True)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Needy", "Needy' cannot be made: .* 'size' and 'speed'; give it: --env.size VALUE"),
        ("Coumt", "needy.py:Coumt' cannot be loaded: needy.py has no 'Coumt'; did you mean 'Count'"),
        ("needy", "needy' cannot be made: .* argument: 'speed'; give it: --env.speed VALUE"),
        ("placed", "'device'; rlplug gives it to a function with the parameters 'num_envs' and 'device'"),
    ],
)
def test_missing_arguments_are_named_as_options(name: str, message: str, place: Path) -> None:
    needy = "class Needy(Count):\n    def __init__(self, size, speed): ...\ndef needy(*, speed): ...\n"
    needy += "def placed(rows, device): ...\n"
    (place / "needy.py").write_text(CODE + needy)
    with pytest.raises(PluginError, match=message):
        train_briefly(f"./needy.py:{name}")


@pytest.mark.parametrize(
    ("env", "options", "message"),
    [
        ("./mine.py:Count", {"env.lenght": 3}, r"takes no argument 'lenght'; did you mean 'length'\? \(it takes "),
        ("CartPole-v1", {"env": {"gravity": 1}}, r"'CartPole-v1' takes no argument 'gravity' \(it takes sutton_barto"),
        ("./mine.py:Count", {"env": {"table": {1}}}, r"'table' is a set, which a run cannot record; write a function"),
        ("./mine.py:many", {"env.num_envs": 3}, "the option num_envs sets the number"),
        ("./mine.py:eight", {}, "made 8 environments but was called for 1; give the function a parameter"),
        ("./mine.py:Count", {"eval_env": "Pendulum-v1"}, "name an environment with the same spaces"),
        ("./mine.py:Count", {"eval_env": lambda: Count()}, "eval_env is a lambda"),
        (Count(), {"env.length": 3}, "Count is an object, which takes no arguments"),
        (Count(), {"num_envs": 2}, "num_envs is 2, and the object Count has 1; leave num_envs out"),
        (3, {}, "3 is not an environment; give an id, a class, a function"),
    ],
)
def test_invalid_options_are_refused_before_anything_is_written(
    env: Any, options: dict[str, Any], message: str, mine: str, place: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        train_briefly(env, **options)
    assert not (place / "runs").exists()


#: An environment of Gymnasium's predecessor.
OLD = "class Old:\n def reset(self): return 0\n def step(self, action): return 0, 0.0, True, {}\n"


def test_function_that_makes_no_environment_is_refused(mine: str, place: Path) -> None:
    (place / "mine.py").write_text(f"def make(): return 3\ndef forgot(): Ellipsis\nnumber = 4\n{OLD}")
    with pytest.raises(PluginError, match=r"make' made a int, which is not an environment: return a gymnasium.Env"):
        train_briefly(f"{mine}:make")
    with pytest.raises(PluginError, match=r"forgot' made None, which is not an environment: return a gymnasium.Env"):
        train_briefly(f"{mine}:forgot")
    with pytest.raises(PluginError, match=r"Old' made a Old, .* derive its class from gymnasium.Env .* has 'spec'"):
        train_briefly(f"{mine}:Old")
    with pytest.raises(PluginError, match=r"mine.py:number' is a int; an environment is a subclass of gymnasium.Env"):
        train_briefly(f"{mine}:number")


def test_function_that_returns_the_same_environment_twice_is_refused(place: Path) -> None:
    """Its rows would be one world, and an evaluation would reset the training's world. An object is copied instead."""
    single = Count()
    several = gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
    for again in (lambda: single, lambda: gymnasium.wrappers.OrderEnforcing(single), lambda: several):
        with pytest.raises(PluginError, match=r"returned the same environment twice, .*; make a new one at every call"):
            train_briefly(again)
    assert not (place / "runs").exists()
    assert train_briefly(single).status == "finished"


def test_vector_in_other_processes_needs_eval_env(place: Path) -> None:
    """A copy would close its pipes; with `eval_env` it trains."""
    several = gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="async")
    try:
        with pytest.raises(
            UsageError, match=r"cannot be copied \(its environments are other processes\); give a class"
        ):
            train_briefly(several)
        assert several.reset(seed=1)[0].shape == (2, 4)
        assert train_briefly(several, eval_env="CartPole-v1").status == "finished"
    finally:
        several.close()


def test_resume_without_the_environment_leaves_the_run_unchanged(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "gone.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(place))
    run = train_briefly("gone:Count")
    monkeypatch.delitem(sys.modules, "gone")
    (place / "gone.py").unlink()
    with pytest.raises(UsageError, match="there is no module 'gone'"):
        resume(run.path, total_timesteps=500, hooks=False)
    assert open_run(run.path).status == "finished"
    assert not (run.path / "error.txt").exists()


SECOND = """
if __name__ == "__main__":
    short = {"total_timesteps": 400, "eval_episodes": 2, "final_eval_episodes": 2}
    train(MyAlgo, "CartPole-v1", short, hooks=False, name="mine")
"""


def test_later_commands_find_the_algorithm_of_a_script(
    place: Path, rlplug: Callable[..., Result], fork: Callable[..., Fork]
) -> None:
    code = (Path(__file__).parents[2] / "examples" / "my_algo.py").read_text()
    (place / "script.py").write_text(f"{code}\nfrom rlplug_core import train\n{SECOND}")
    assert fork("--script", "script.py").wait() == 0
    (place / "script.py").unlink()
    result = rlplug("evaluate", "mine", "--episodes", "2", "--json")
    assert (result.code, json.loads(result.out)["episodes"]) == (0, 2)


SCRIPT = """
from rlplug_core import train
from world import Count

if __name__ == "__main__":
    short = {"total_timesteps": 256, "eval_episodes": 2, "final_eval_episodes": 2, "num_envs": 2, "n_steps": 64}
    train("ppo", Count, short, hooks=False, name="scripted")
"""


@pytest.fixture
def project(place: Path) -> Path:
    """A script and two modules, which it imports directly and indirectly, outside the working directory."""
    folder = place / "project"
    folder.mkdir()
    (folder / "lengths.py").write_text("LENGTH = 5\n")
    (folder / "world.py").write_text(f"from lengths import LENGTH\n{CODE}")
    (folder / "script.py").write_text(SCRIPT)
    return folder


def test_later_commands_find_modules_next_to_a_script(
    project: Path, place: Path, process: Callable[..., Result], fork: Callable[..., Fork]
) -> None:
    assert fork("--script", project / "script.py").wait() == 0
    assert open_run("scripted").config["sources"]["env"]["file"] == str(project / "world.py")
    result = process(
        "evaluate", "scripted", "--episodes", "2", PYTHONSAFEPATH="1"
    )  # like `rlplug`, which adds no folder
    assert result.code == 0, result


def test_workers_find_a_module_in_the_working_directory(
    project: Path, process: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    words = ("--total-timesteps", "128", "--n-steps", "32", "--num-envs", "2", "--env-workers", "2")
    result = process("run", "ppo", "world:Count", *words, PYTHONSAFEPATH="1", RLPLUG_DISABLED_PLUGINS="mlflow")
    assert result.code == 0, result


def test_module_in_the_working_directory_registers_an_id(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = 'gymnasium.register("FromHere-v0", "gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=9)'
    (place / "registers.py").write_text(f"import gymnasium\n{entry}\n")
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])  # "" is the working directory
    assert train_briefly("registers:FromHere-v0").config["modules"] == {"env": str(place)}


def test_copy_of_a_file_imports_modules_next_to_the_file(
    project: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forget() -> None:
        monkeypatch.setattr(sys, "path", [folder for folder in sys.path if not folder.startswith(str(place))])
        monkeypatch.delitem(sys.modules, "lengths", raising=False)

    forget()
    run = train_briefly(f"{project}/world.py:Count")
    forget()
    assert resume(run.path, total_timesteps=160, hooks=False).status == "finished"
    forget()


def test_options_must_be_a_dictionary(place: Path) -> None:
    with pytest.raises(UsageError, match=r"options is 20000; give a dictionary of them, such as"):
        train("ppo", "CartPole-v1", 20_000)  # type: ignore[arg-type]


def test_command_line_file_and_dictionary_give_the_same_options(
    mine: str, place: Path, rlplug: Callable[..., Result]
) -> None:
    words = [word for name, value in BRIEF.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    arguments = ("--env.length", "6", "--env.table.a-b=[1, 'x']", "--eval-env.length=3")
    (place / "mine.toml").write_text("[env]\nlength = 6\ntable = {a-b = [1, 'x']}\n[eval_env]\nlength = 3\n")
    done = [
        rlplug("run", "ppo", f"{mine}:Count", *arguments, *words, "--name", "typed"),
        rlplug("run", "ppo", f"{mine}:Count", "--config", "mine.toml", *words, "--name", "file"),
    ]
    assert [result.code for result in done] == [0, 0], done
    options = {"env": {"length": 6, "table": {"a-b": [1, "x"]}}, "eval_env": {"length": 3}}
    train("ppo", f"{mine}:Count", {**BRIEF, **options}, name="given", hooks=False)
    configs = [open_run(name).config for name in ("typed", "file", "given")]
    assert configs[0]["options"] == configs[1]["options"] == configs[2]["options"]
    assert len({config["group"] for config in configs}) == 1
    assert open_run("typed").evaluate(2).lengths == (3, 3)
    assert set(open_run("typed").episodes()["lengths"]) == {6}
    evaluation = json.loads(rlplug("evaluate", "typed", "--episodes", "2", "--env.length", "8", "--json").out)
    assert (evaluation["arguments"], evaluation["wrap"], type(evaluation["seed"])) == ({"length": 8}, None, int)
    assert evaluation["lengths"] == [8, 8]
    printed = rlplug("run", "ppo", f"{mine}:Count", *arguments, "--print-config").out
    (place / "again.toml").write_text(printed)
    assert '"env.length" = 6' in printed
    assert rlplug("run", "ppo", f"{mine}:Count", "--config", "again.toml", "--print-config").out.count('"env.') == 2


def test_missing_value_and_missing_name_are_reported(rlplug: Callable[..., Result]) -> None:
    assert "--env.length: write a value" in rlplug("run", "ppo", "CartPole-v1", "--env.length").err
    assert "--env.: write NAME VALUE after the dot" in rlplug("run", "ppo", "CartPole-v1", "--env.", "3").err


@pytest.mark.parametrize(("guard", "importable"), [("if __name__ == '__main__':\n    pass\n", True), ("pass\n", False)])
def test_script_has_a_name_if_its_import_does_not_run_it(
    guard: str, importable: bool, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = ModuleType("__main__")
    script.__file__ = str(place / "script.py")
    (place / "script.py").write_text(f"class Mine: ...\n{guard}")
    monkeypatch.setitem(sys.modules, "__main__", script)
    mine = type("Mine", (Count,), {"__module__": "__main__", "__qualname__": "Mine"})
    source = source_of(mine)
    if importable:
        assert source == EnvSource(f"{place}/script.py:Mine", {}, mine)
    else:
        assert "put `if __name__ == '__main__':` in" in source.unnamed


@pytest.mark.parametrize(
    ("env", "options", "kind"),
    [
        ("./mine.py:make_single", {}, "discrete"),
        ("MountainCarContinuous-v0", {}, "continuous"),
        ("rlplug_core.testing.envs:Pixels", {}, "pixels"),
        ("rlplug_core.testing.envs:Pixels", {"wrap": ["flatten"]}, "discrete"),
        ("CartPole-v1", {}, ""),
    ],
)
def test_spaces_decide_the_kind_of_an_environment(env: str, options: dict[str, Any], kind: str, mine: str) -> None:
    source = source_of(env)
    assert kind_for("ppo", source, options.get("wrap", ())) == kind
    assert not kind_for("trpo", source, options.get("wrap", ())), "it has no tables for kinds"


def test_unknown_environment_gets_the_preset_of_its_kind(mine: str, rlplug: Callable[..., Result]) -> None:
    """The same from Python and from the command line; given options win."""
    run = train("ppo", f"{mine}:Count", {**BRIEF, "n_epochs": 3}, hooks=False)
    assert [run.options[name] for name in ("num_envs", "n_steps", "n_epochs")] == [8, 8, 3]
    assert [run.config["origins"][name] for name in ("num_envs", "n_steps", "n_epochs")] == [
        "preset",
        "option",
        "option",
    ]
    printed = rlplug("run", "ppo", f"{mine}:Count", "--print-config").out
    assert "\nnum_envs = 8 " in printed
    assert "\nn_steps = 256 " in f"\n{printed}"
