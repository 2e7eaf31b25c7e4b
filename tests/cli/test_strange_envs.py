"""Unusual environments and settings are accepted, or refused with one sentence."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlplug_core import load, train
from rlplug_core.errors import BadEnv, MissingPackage, PluginError
from rlplug_core.runs.checkpoint import read
from rlplug_core.testing import env_checks
from tests.cli.warm import Fork
from tests.waiting import PATIENCE

SHORT = {"total_timesteps": 300, "num_envs": 1, "eval_episodes": 1, "final_eval_episodes": 1}


class Plain(gymnasium.Env[Any, Any]):
    """Episodes of five steps."""

    observation_space: Any = spaces.Box(-1, 1, (2,), np.float32)
    action_space: Any = spaces.Discrete(2)

    def observe(self) -> Any:
        return np.zeros(2, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return self.observe(), 1.0, self.time == 5, False, {}


class Chain(Plain):
    """Its state gets one level deeper with each step."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.head: Any = None
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        self.head = [int(action), self.head]
        self.time += 1
        return self.observe(), 1.0, self.time == 600, False, {}


def test_state_too_deep_to_capture_makes_the_resume_inexact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {**SHORT, "total_timesteps": 1000, "checkpoint_every": 100}
    run = train("ppo", Chain, options, out=tmp_path, hooks=False)
    assert run.status == "finished"
    reason = "Chain: attribute 'head' is nested more than 100 levels deep, which cannot be captured"
    manifests = [read(path)[1] for path in run.directory.checkpoints_path.iterdir()]
    assert any(not manifest["exact"] and manifest["inexact"].endswith(reason) for manifest in manifests)
    assert capsys.readouterr().err.count("a resume from here on will not be exact: ") == 1


class Stuck(Plain):
    def close(self) -> None:
        raise RuntimeError("cannot close")


class Exiting(Plain):
    """Its simulator exits the process."""

    def close(self) -> None:
        raise SystemExit("cannot close")


@pytest.mark.parametrize(("env", "kind"), [(Stuck, "RuntimeError"), (Exiting, "SystemExit")])
def test_error_in_close_is_reported_once(
    env: Any, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("ppo", env, SHORT, out=tmp_path, hooks=False).status == "finished"
    errors = capsys.readouterr().err
    assert errors.count(f"{env.__name__} raised in close(): {kind}: cannot close; everything else continues") == 1


class Masked(Plain):
    """Gives a mask in info, and records its actions."""

    action_space = spaces.Discrete(3)

    def __init__(self, mask: Any, actions: list[int]) -> None:
        self.mask = mask
        self.actions = actions

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0], {"action_mask": np.array(self.mask)}

    def step(self, action: Any) -> Any:
        self.actions.append(int(action))
        return *super().step(action)[:4], {"action_mask": np.array(self.mask)}


@pytest.mark.parametrize("mask", [[256, 1, 0], [0.5, 0.5, 0], [1e-9, 3, 0], [True, True, False], [np.inf, 1, 0]])
def test_nonzero_numbers_in_a_mask_allow_an_action(mask: Any, tmp_path: Path) -> None:
    actions = list[int]()
    train("ppo", lambda: Masked(mask, actions), SHORT, out=tmp_path, hooks=False)
    assert set(actions) == {0, 1}


@pytest.mark.parametrize(
    ("mask", "wrong"), [([0, -np.inf, 0], "-inf"), ([0, -1e9, 0], "-1e.09"), ([np.nan, 1, 1], "nan")]
)
def test_masks_for_logits_are_refused(mask: Any, wrong: str, tmp_path: Path) -> None:
    with pytest.raises(BadEnv, match=rf"info\['action_mask'\] holds {wrong}; give 1 for each choice that is allowed"):
        train("ppo", lambda: Masked(mask, []), SHORT, out=tmp_path, hooks=False)


class TwoRewards(Plain):
    """Multi-objective."""

    def step(self, action: Any) -> Any:
        obs, _, *rest = super().step(action)
        return obs, np.array([1.0, 2.0]), *rest


class AddRewards(gymnasium.RewardWrapper[Any, Any]):
    def reward(self, reward: Any) -> float:
        return float(np.sum(reward))


class Words(Plain):
    """Observes text."""

    observation_space = spaces.Text(9)

    def observe(self) -> Any:
        return "left"


class Letters(gymnasium.ObservationWrapper[Any, Any, Any]):
    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.observation_space = spaces.Box(0, 255, (1,), np.float32)

    def observation(self, observation: Any) -> Any:
        return np.array([len(observation)], np.float32)


class NotNumbers(Plain):
    """Observes NaN."""

    def observe(self) -> Any:
        return np.full(2, np.nan, np.float32)


class Zeros(gymnasium.ObservationWrapper[Any, Any, Any]):
    def observation(self, observation: Any) -> Any:
        return np.nan_to_num(observation)


class Unready(Plain):
    """Raises until a wrapper has called `prepare`."""

    ready = False

    def step(self, action: Any) -> Any:
        if not self.ready:
            raise RuntimeError("call prepare first")
        return super().step(action)


class Prepare(gymnasium.Wrapper[Any, Any, Any, Any]):
    def __init__(self, env: Any) -> None:
        super().__init__(env)
        env.unwrapped.ready = True


CASES = [(TwoRewards, AddRewards, 15), (Words, Letters, 5), (NotNumbers, Zeros, 5), (Unready, Prepare, 5)]


@pytest.mark.parametrize(("env", "wrapper", "total"), CASES)
@pytest.mark.parametrize("form", ["class", "object", "id"])
def test_wrapper_can_make_an_environment_valid(env: Any, wrapper: Any, total: int, form: str, tmp_path: Path) -> None:
    options = {**SHORT, "wrap": [f"{__name__}:{wrapper.__name__}"]}
    gymnasium.register(f"{env.__name__}-v0", entry_point=env)
    try:
        given = {"class": env, "object": env(), "id": f"{env.__name__}-v0"}[form]
        run = train("ppo", given, options, out=tmp_path, hooks=False)
        assert run.evaluate(episodes=2).mean == total
    finally:
        del gymnasium.registry[f"{env.__name__}-v0"]


@pytest.mark.parametrize(("env", "wrapper", "total"), CASES)
def test_invalid_environment_is_refused_without_its_wrapper(env: Any, wrapper: Any, total: int, tmp_path: Path) -> None:
    message = "the reward is|have no fixed shape|is not a number|call prepare first"
    for wrap in ([], [f"{__name__}:Other"], ["time-limit:steps=3"]):
        with pytest.raises((BadEnv, PluginError), match=message):
            train("ppo", env, {**SHORT, "wrap": wrap}, out=tmp_path, hooks=False)


class Other(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Changes nothing."""


def test_id_without_a_version_is_found_in_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = "gymnasium.envs.classic_control.cartpole:CartPoleEnv"
    text = f"import gymnasium\ngymnasium.register('Unversioned', entry_point='{entry}', max_episode_steps=50)\n"
    (tmp_path / "unversioned_module.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    run = train("ppo", "unversioned_module:Unversioned", SHORT, out=tmp_path / "runs", hooks=False)
    assert run.status == "finished"
    with pytest.raises(PluginError, match="unversioned_module has no 'Absent'"):
        train("ppo", "unversioned_module:Absent", SHORT, out=tmp_path / "runs", hooks=False)


class Line(Plain):
    """Its goals are integers."""

    position: Any = spaces.Discrete(10)
    observation_space = spaces.Dict(observation=position, achieved_goal=position, desired_goal=position)

    def observe(self) -> Any:
        return {"observation": self.time, "achieved_goal": self.time, "desired_goal": 3}

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return (np.asarray(achieved_goal) == desired_goal).astype(np.float32) - 1


def test_goals_may_be_integers(tmp_path: Path) -> None:
    options = {**SHORT, "her": 4, "learning_starts": 100}
    assert train("dqn", Line, options, out=tmp_path, hooks=False).status == "finished"


@contextlib.contextmanager
def double_precision() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


STATES: tuple[Callable[[], Any], ...] = (
    double_precision,
    torch.no_grad,
    torch.inference_mode,
    lambda: torch.autocast("cpu"),
    lambda: torch.device("meta"),
)


@pytest.mark.parametrize("algorithm", ["ppo", pytest.param("dqn", marks=pytest.mark.slow)])
def test_global_settings_of_torch_have_no_effect(algorithm: str, tmp_path: Path) -> None:
    options = {**SHORT, "total_timesteps": 600}
    expected = train(algorithm, "CartPole-v1", options, out=tmp_path / "plain", hooks=False)
    returns = expected.evaluate(episodes=2, seed=1).returns
    action = load(expected)(np.zeros(4, np.float32))
    for number, state in enumerate(STATES):
        with state():
            run = train(algorithm, "CartPole-v1", options, out=tmp_path / str(number), hooks=False)
            score = run.evaluate(episodes=2, seed=1).returns
            policy_action = load(run)(np.zeros(4, np.float32))
        assert run.evaluate(episodes=2, seed=1).returns == score == returns, number
        assert policy_action == action, number


def test_closed_stdout_does_not_stop_a_run(tmp_path: Path, fork: Callable[..., Fork]) -> None:
    script = f"""
import sys
from rlplug_core import train
sys.stdout.close()
run = train("ppo", "CartPole-v1", {SHORT!r}, out={str(tmp_path)!r}, hooks=False)
sys.stderr.close()
run = train("ppo", "CartPole-v1", {SHORT!r}, out={str(tmp_path)!r}, hooks=False)
sys.exit(run.status != "finished")
"""
    assert fork("-c", script).wait(PATIENCE) == 0


def test_lazy_wrapper_names_its_missing_package(tmp_path: Path) -> None:
    for name in ("JaxToNumpy", "JaxToTorch", "NumpyToTorch"):
        if importlib.util.find_spec("array_api_compat") is None:
            message = f"'gymnasium:{name}' needs the module 'array_api_compat', which is not installed"
            with pytest.raises(MissingPackage, match=message):
                train("ppo", "CartPole-v1", {**SHORT, "wrap": [f"gymnasium:{name}"]}, out=tmp_path, hooks=False)


class Memory(Plain):
    """Observes bytes that are not an image."""

    observation_space = spaces.Box(0, 255, (128,), np.uint8)

    def observe(self) -> Any:
        return np.zeros(128, np.uint8)


class Parts(Plain):
    observation_space = spaces.Dict(screen=spaces.Box(0, 255, (9, 9), np.uint8), speed=spaces.Box(-1, 1, (2,)))

    def observe(self) -> Any:
        return {"screen": np.zeros((9, 9), np.uint8), "speed": np.zeros(2, np.float32)}


@pytest.mark.parametrize(("env", "which"), [(Memory, ""), (Parts, " 'screen'")])
def test_check_names_the_integers_that_networks_divide(env: Any, which: str) -> None:
    (scale,) = (check for check in env_checks(f"{__name__}:{env.__name__}") if check.name == "env-scale")
    assert f"observations{which} are integers, which networks divide by their bound" in scale.outcome().message


def test_render_modes_are_checked_before_render(tmp_path: Path) -> None:
    run = train("ppo", TextOnly, SHORT, out=tmp_path, hooks=False)
    with pytest.raises(BadEnv, match=r"TextOnly draws no frames: its metadata names the render modes 'ansi'"):
        run.play(episodes=1, video=tmp_path / "film.webp")


class TextOnly(Plain):
    metadata: Any = {"render_modes": ["ansi"]}

    def render(self) -> Any:
        raise AssertionError("render was called")
