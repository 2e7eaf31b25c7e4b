"""Training in environments that nobody here wrote: what they do differently is accepted, or refused in one sentence."""

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
    """Its state is nested one level deeper with each step."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.head: Any = None
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        self.head = [int(action), self.head]
        self.time += 1
        return self.observe(), 1.0, self.time == 600, False, {}


def test_a_run_with_state_too_deep_to_capture_continues_and_says_it_is_inexact(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {**SHORT, "total_timesteps": 1000, "checkpoint_every": 100}
    run = train("ppo", Chain, options, out=tmp_path, hooks=False)
    assert run.status == "finished"
    reason = "Chain: attribute 'head' is nested more than 100 levels deep, which cannot be captured"
    manifests = [read(place)[1] for place in run.directory.checkpoints_path.iterdir()]
    assert any(not one["exact"] and one["inexact"].endswith(reason) for one in manifests)
    assert capsys.readouterr().err.count("a resume from here on will not be exact: ") == 1


class Stuck(Plain):
    def close(self) -> None:
        raise RuntimeError("cannot close")


class Exiting(Plain):
    """Its simulator ends the whole process."""

    def close(self) -> None:
        raise SystemExit("cannot close")


@pytest.mark.parametrize(("env", "kind"), [(Stuck, "RuntimeError"), (Exiting, "SystemExit")])
def test_an_environment_that_raises_in_close_is_trained_and_said_once(
    env: Any, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("ppo", env, SHORT, out=tmp_path, hooks=False).status == "finished"
    said = capsys.readouterr().err
    assert said.count(f"{env.__name__} raised in close(): {kind}: cannot close; everything else continues") == 1


class Masked(Plain):
    """Gives a mask in info, and counts the actions that are taken."""

    action_space = spaces.Discrete(3)

    def __init__(self, mask: Any, taken: list[int]) -> None:
        self.mask, self.taken = mask, taken

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0], {"action_mask": np.array(self.mask)}

    def step(self, action: Any) -> Any:
        self.taken.append(int(action))
        return *super().step(action)[:4], {"action_mask": np.array(self.mask)}


@pytest.mark.parametrize("mask", [[256, 1, 0], [0.5, 0.5, 0], [1e-9, 3, 0], [True, True, False], [np.inf, 1, 0]])
def test_every_number_but_0_in_a_mask_allows(mask: Any, tmp_path: Path) -> None:
    taken = list[int]()
    train("ppo", lambda: Masked(mask, taken), SHORT, out=tmp_path, hooks=False)
    assert set(taken) == {0, 1}


@pytest.mark.parametrize(
    ("mask", "wrong"), [([0, -np.inf, 0], "-inf"), ([0, -1e9, 0], "-1e.09"), ([np.nan, 1, 1], "nan")]
)
def test_masks_that_are_added_to_logits_are_refused(mask: Any, wrong: str, tmp_path: Path) -> None:
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
def test_a_wrapper_counts_before_an_environment_is_judged(
    env: Any, wrapper: Any, total: int, form: str, tmp_path: Path
) -> None:
    options = {**SHORT, "wrap": [f"{__name__}:{wrapper.__name__}"]}
    gymnasium.register(f"{env.__name__}-v0", entry_point=env)
    try:
        given = {"class": env, "object": env(), "id": f"{env.__name__}-v0"}[form]
        run = train("ppo", given, options, out=tmp_path, hooks=False)
        assert run.evaluate(episodes=2).mean == total
    finally:
        del gymnasium.registry[f"{env.__name__}-v0"]


@pytest.mark.parametrize(("env", "wrapper", "total"), CASES)
def test_without_the_wrapper_or_with_another_the_refusal_stays(
    env: Any, wrapper: Any, total: int, tmp_path: Path
) -> None:
    said = "the reward is|have no fixed shape|is not a number|call prepare first"
    for wrap in ([], [f"{__name__}:Other"], ["time-limit:steps=3"]):
        with pytest.raises((BadEnv, PluginError), match=said):
            train("ppo", env, {**SHORT, "wrap": wrap}, out=tmp_path, hooks=False)


class Other(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Changes nothing."""


def test_an_id_without_a_version_is_found_in_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = "gymnasium.envs.classic_control.cartpole:CartPoleEnv"
    text = f"import gymnasium\ngymnasium.register('Unversioned', entry_point='{entry}', max_episode_steps=50)\n"
    (tmp_path / "unversioned_module.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    run = train("ppo", "unversioned_module:Unversioned", SHORT, out=tmp_path / "runs", hooks=False)
    assert run.status == "finished"
    with pytest.raises(PluginError, match="unversioned_module has no 'Absent'"):
        train("ppo", "unversioned_module:Absent", SHORT, out=tmp_path / "runs", hooks=False)


class Line(Plain):
    """Its goals are one number."""

    place: Any = spaces.Discrete(10)
    observation_space = spaces.Dict(observation=place, achieved_goal=place, desired_goal=place)

    def observe(self) -> Any:
        return {"observation": self.time, "achieved_goal": self.time, "desired_goal": 3}

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return (np.asarray(achieved_goal) == desired_goal).astype(np.float32) - 1


def test_goals_may_be_one_number(tmp_path: Path) -> None:
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
def test_global_settings_of_torch_change_nothing(algorithm: str, tmp_path: Path) -> None:
    options = {**SHORT, "total_timesteps": 600}
    expected = train(algorithm, "CartPole-v1", options, out=tmp_path / "plain", hooks=False)
    returns = expected.evaluate(episodes=2, seed=1).returns
    action = load(expected)(np.zeros(4, np.float32))
    for number, state in enumerate(STATES):
        with state():
            run = train(algorithm, "CartPole-v1", options, out=tmp_path / str(number), hooks=False)
            score = run.evaluate(episodes=2, seed=1).returns
            found = load(run)(np.zeros(4, np.float32))
        assert run.evaluate(episodes=2, seed=1).returns == score == returns, number
        assert found == action, number


def test_a_closed_stdout_ends_no_run(tmp_path: Path, fork: Callable[..., Fork]) -> None:
    lines = f"""
import sys
from rlplug_core import train
sys.stdout.close()
run = train("ppo", "CartPole-v1", {SHORT!r}, out={str(tmp_path)!r}, hooks=False)
sys.stderr.close()
run = train("ppo", "CartPole-v1", {SHORT!r}, out={str(tmp_path)!r}, hooks=False)
sys.exit(run.status != "finished")
"""
    assert fork("-c", lines).wait(PATIENCE) == 0


def test_names_that_a_module_makes_when_asked_say_which_package_they_need(tmp_path: Path) -> None:
    for name in ("JaxToNumpy", "JaxToTorch", "NumpyToTorch"):
        if importlib.util.find_spec("array_api_compat") is None:
            said = f"'gymnasium:{name}' needs the module 'array_api_compat', which is not installed"
            with pytest.raises(MissingPackage, match=said):
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
def test_check_says_which_integers_networks_divide(env: Any, which: str) -> None:
    (scale,) = (check for check in env_checks(f"{__name__}:{env.__name__}") if check.name == "env-scale")
    assert f"observations{which} are integers, which networks divide by their bound" in scale.outcome().message


def test_the_render_modes_are_consulted_before_render(tmp_path: Path) -> None:
    run = train("ppo", TextOnly, SHORT, out=tmp_path, hooks=False)
    with pytest.raises(BadEnv, match=r"TextOnly draws no frames: its metadata names the render modes 'ansi'"):
        run.play(episodes=1, video=tmp_path / "film.webp")


class TextOnly(Plain):
    metadata: Any = {"render_modes": ["ansi"]}

    def render(self) -> Any:
        raise AssertionError("asked for a frame")
