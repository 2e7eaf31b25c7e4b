"""The Gymnasium provider makes environments, or raises errors that say what to do."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from rlplug_core.errors import MissingPackage, PluginError, UnknownEnv, UsageError
from rlplug_core.loop.plan import Plan
from rlplug_core.plugins import families
from rlplug_core.plugins.envs import make_env, make_shown
from rlplug_core.protocols import Provider
from rlplug_envs.adapter import Adapter
from rlplug_envs.families import classic, mujoco
from rlplug_envs.families.classic import Gymnasium
from rlplug_envs.vector import SerialEnvs
from tests.core.fakes import TINY
from tests.tables import for_each


def test_provider_lists_and_makes_environments() -> None:
    provider = Gymnasium()
    assert isinstance(provider, Provider)
    ids = list(provider.ids())
    assert {"CartPole-v1", "Taxi-v4", "LunarLander-v3", "HalfCheetah-v5"} <= set(ids)
    assert "HalfCheetah-v2" not in ids
    env = provider.make("CartPole-v1", 2)
    assert (env.spec.id, env.spec.num_envs) == ("CartPole-v1", 2)


def test_native_vectors_are_used_from_a_number_of_rows() -> None:
    threshold = classic.NATIVE_FROM["CartPole-v1"]
    assert isinstance(Gymnasium().make("CartPole-v1", threshold - 1), SerialEnvs)
    assert isinstance(Gymnasium().make("CartPole-v1", threshold), Adapter)
    assert isinstance(Gymnasium().make("MountainCar-v0", 64), SerialEnvs)


def test_rows_have_no_redundant_wrappers() -> None:
    env = Gymnasium().make("CartPole-v1", 1)
    assert isinstance(env, SerialEnvs)
    assert type(env.envs[0]).__name__ == "CartPoleEnv"


@pytest.mark.parametrize("rows", [1, 12])
def test_minus_one_removes_the_time_limit(rows: int) -> None:
    env = Gymnasium({"max_episode_steps": -1}).make("CartPole-v1", rows)
    assert env.spec.limit == 0
    env.reset(0)
    assert not env.step(np.zeros(rows, np.int64)).ended


@pytest.mark.parametrize("steps", [0, -2, 2.5, True, None, "abc"])
def test_invalid_time_limit_raises(steps: object) -> None:
    message = (
        rf"^'CartPole-v1': max_episode_steps is {steps!r}; give a whole number from 1 on, or -1 for no time limit$"
    )
    with pytest.raises(UsageError, match=message):
        Gymnasium({"max_episode_steps": steps}).make("CartPole-v1", 1)


@for_each(
    "id, message",
    [
        ("CartPole-v2", "unknown environment 'CartPole-v2'; there is 'CartPole-v0' and 'CartPole-v1'"),
        ("CartPole", "unknown environment 'CartPole'; there is 'CartPole-v0' and 'CartPole-v1'"),
        ("LunarLander-v2", "unknown environment 'LunarLander-v2'; there is 'LunarLander-v3'"),
        ("Hopper-v3", "unknown environment 'Hopper-v3'; there is 'Hopper-v4' and 'Hopper-v5'"),
        ("Cartpole-v1", "unknown environment 'Cartpole-v1'; did you mean 'CartPole-v1'"),
        ("Xyzzyq-v0", "unknown environment 'Xyzzyq-v0' (if a module of yours registers it, write module:Xyzzyq-v0)"),
        ("Penduljm-v1", "unknown environment 'Penduljm-v1'; did you mean 'Pendulum-v1'"),
        ("Nowhere/Xyzzyq-v0", "unknown environment 'Nowhere/Xyzzyq-v0': no installed package provides the namespace"),
        ("what is this", "'what is this' is not an environment id; one looks like 'CartPole-v1'"),
        ("", "'' is not an environment id"),
    ],
)
def test_unknown_ids_suggest_the_nearest(id: str, message: str) -> None:
    with pytest.raises(UnknownEnv) as caught:
        Gymnasium().make(id, 1)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("id", ["PongNoFrameskip-v4", "Pong-ramDeterministic-v4", "Pong-v4"])
@pytest.mark.parametrize("installed", [True, False])
def test_old_atari_id_suggests_the_current_id(id: str, installed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in gymnasium.registry if name.startswith("Pong")]:  # if ale_py has been imported
        monkeypatch.delitem(gymnasium.registry, name)
    monkeypatch.setattr(families, "find_spec", lambda name: object() if installed else None)
    with pytest.raises(UnknownEnv) as caught:
        Gymnasium().make(id, 1)
    remedy = "" if installed else "; install it: python -m pip install 'rlplug-envs[atari]'"
    assert str(caught.value) == f"unknown environment '{id}'; there is 'ALE/Pong-v5'{remedy}"


def test_id_with_a_module_gets_no_module_advice() -> None:
    with pytest.raises(UnknownEnv, match=r"^unknown environment 'Xyzzyq-v0'$"):
        Gymnasium().make("json:Xyzzyq-v0", 1)


@pytest.mark.parametrize(
    ("id", "package"),
    [
        ("dm_control/cartpole-balance-v0", "'rlplug-envs[dm-control]'"),
        ("FetchReach-v4", "'rlplug-envs[robotics]'"),
        ("CrafterReward-v1", "'rlplug-envs[crafter]'"),
        ("highway-v0", "highway-env"),
    ],
)
def test_id_of_a_missing_family_names_the_install_command(
    id: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(gymnasium.registry, id, raising=False)
    monkeypatch.setattr(families, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "shimmy", None)
    with pytest.raises(MissingPackage) as caught:
        Gymnasium().make(id, 1)
    assert str(caught.value).endswith(f"install it: python -m pip install {package}")


@pytest.mark.parametrize(
    ("spec", "package"),
    [
        (EnvSpec("dm_control/any-v0", lambda: None), "rlplug-envs[dm-control]"),
        (EnvSpec("Any-v0", "gymnasium_robotics.any:Any"), "rlplug-envs[robotics]"),
    ],
    ids=["dm_control", "robotics"],
)
def test_package_that_does_not_fit_mujoco_raises(spec: EnvSpec, package: str) -> None:
    with (
        pytest.raises(
            MissingPackage, match=r"does not run with MuJoCo \d+\.\d+\.\d+ \(AssertionError: flat\)"
        ) as caught,
        mujoco.make_unversioned(spec),
    ):
        raise AssertionError("flat")
    assert str(caught.value).endswith(f"python -m pip install '{package}'")


def test_errors_of_another_package_stay_unchanged() -> None:
    with pytest.raises(AssertionError), mujoco.make_unversioned(EnvSpec("Any-v0", "any:Any")):
        raise AssertionError


def without(monkeypatch: pytest.MonkeyPatch, package: str, module: str) -> None:
    """Pretend that `package` is not installed, and that nothing has imported `module` yet."""
    for name in [name for name in sys.modules if name.startswith(module)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)


@pytest.mark.parametrize(
    ("id", "package", "module", "line"),
    [
        ("LunarLander-v3", "Box2D", "gymnasium.envs.box2d", "python -m pip install 'rlplug-envs[box2d]'"),
        ("Hopper-v5", "mujoco", "gymnasium.envs.mujoco", "python -m pip install 'rlplug-envs[mujoco]'"),
        ("ALE/Pong-v5", "ale_py", "ale_py", "python -m pip install 'rlplug-envs[atari]'"),
        ("MinAtar/Breakout-v1", "minatar", "minatar", "python -m pip install 'rlplug-envs[minatar]'"),
        ("MiniGrid-Empty-8x8-v0", "minigrid", "minigrid", "python -m pip install 'rlplug-envs[minigrid]'"),
        (
            "AntBulletEnv-v0",
            "pybullet_envs_gymnasium",
            "pybullet_envs",
            "python -m pip install 'rlplug-envs[pybullet]'",
        ),
        ("absent_module:Thing-v0", "absent_module", "absent_module", "python -m pip install absent_module"),
    ],
)
def test_missing_package_names_the_install_command(
    id: str, package: str, module: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, package, module)
    with pytest.raises(MissingPackage) as caught:
        Gymnasium().make(id, 1)
    assert id.rpartition(":")[2].partition("/")[0] in str(caught.value)
    assert str(caught.value).endswith(line)


def test_missing_package_is_reported_before_its_wrapper(monkeypatch: pytest.MonkeyPatch) -> None:
    """MiniGrid's presets name a wrapper of the same package."""
    without(monkeypatch, "minigrid", "minigrid")
    values = {"wrap": ["minigrid.wrappers:OneHotPartialObsWrapper"]}
    with pytest.raises(MissingPackage, match=r"python -m pip install 'rlplug-envs\[minigrid\]'$"):
        Plan.make(TINY, "MiniGrid-Empty-8x8-v0", values)
    with pytest.raises(UsageError, match="there is no module 'minigrid"):
        Plan.make(TINY, "CartPole-v1", values)


class Plain(gymnasium.Env[Any, Any]):
    """Does not render, and takes only its own arguments."""

    observation_space = spaces.Box(0, 1, (1,))
    action_space = spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"]}  # Gymnasium warns without it

    def __init__(self, length: int = 3) -> None:
        if length < 1:
            raise ValueError("nobody walks so far")

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(1, np.float32), 1.0, False, False, {}


@pytest.mark.parametrize("limit", [None, 5])
def test_environment_without_render_mode_runs(limit: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gymnasium.registry, "Plain-v0", EnvSpec("Plain-v0", Plain, max_episode_steps=limit))
    env = make_env("Plain-v0", 2)
    env.reset(0)
    assert env.step(np.zeros(2, np.int64)).count == 2
    with pytest.raises(PluginError, match=r"'Plain-v0' cannot be made: TypeError: .*'render_mode'"):
        make_shown("Plain-v0", "rgb_array", {})


def test_constructor_error_becomes_plugin_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gymnasium.registry, "Plain-v0", EnvSpec("Plain-v0", Plain))
    with pytest.raises(PluginError, match="'Plain-v0' cannot be made: ValueError: nobody walks so far"):
        make_env("Plain-v0", 1, {"length": 0})


class Wrapped(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Steps twice; its place above the time limit must be kept."""

    def step(self, action: Any) -> Any:
        self.env.step(action)
        return self.env.step(action)


def test_time_limit_stays_below_other_wrappers(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = EnvSpec(
        "Twice-v0",
        "gymnasium.envs.classic_control.mountain_car:MountainCarEnv",
        max_episode_steps=10,
        additional_wrappers=(Wrapped.wrapper_spec(),),
    )
    monkeypatch.setitem(gymnasium.registry, "Twice-v0", spec)
    env = Gymnasium().make("Twice-v0", 1)
    env.reset(0)
    ends = [env.step(np.zeros(1, np.int64)).ended for _ in range(5)]
    assert ends == [False] * 4 + [True]
