"""Checks of other kinds of plugins: right ones pass, and each wrong one fails its check."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from rlplug_core import plugins
from rlplug_core.arrays import DeviceGenerator
from rlplug_core.clock import Steering
from rlplug_core.errors import MissingPackage, UnknownEnv
from rlplug_core.plugins.tensor_world import Moved, Rows, TensorWorld
from rlplug_core.plugins.transform import Transform, with_obs
from rlplug_core.protocols import Env, Evaluated
from rlplug_core.testing import controller_checks, env_checks, hook_checks, wrapper_checks
from rlplug_core.testing.distributions import write_distribution
from rlplug_core.testing.envs import Chain, Continuous, Masked
from rlplug_core.testing.kit import env_subject
from rlplug_core.testing.kit.algorithm_checks import KINDS
from rlplug_core.testing.multi_part_actions import Panel
from rlplug_core.types import MASK, Array, Obs, State, Timestep
from tests.core.wraps import HERE as WRAPS
from tests.core.wraps import Centered
from tests.tables import for_each

HERE = Path(__file__).resolve()


class TooLarge(Continuous):
    """Returns observations outside of its space."""

    def observe(self) -> Array:
        return 3 * super().observe()


class Doubtful(Chain):
    """Its episodes are terminated and truncated at once."""

    def step(self, action: Array) -> Timestep:
        timestep = super().step(action)
        timestep.truncated |= timestep.terminated
        return timestep


class Uncounted(Chain):
    """Does not report the episodes that it cuts or ends."""

    def step(self, action: Array) -> Timestep:
        return replace(super().step(action), episodes=[])


class Forbidding(Masked):
    """Sometimes forbids all actions, although its episode continues."""

    def observe(self) -> Obs:
        obs = super().observe()
        assert isinstance(obs, dict)
        obs[MASK][self.state["length"] == 1] = 0
        return obs

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        forbidden = self.state["forbidden"]
        return super().move(np.where(action == forbidden, (forbidden + 1) % 3, action))


class Haphazard(Continuous):
    """Draws from a generator that it does not seed."""

    hidden: Any = np.random.default_rng()

    def open(self, rows: Array) -> None:
        super().open(rows)
        self.state["x"][rows] = self.hidden.uniform(-1, 1, self.num_envs)[rows]


class Reuses(Chain):
    """Returns the same array in each step."""

    def step(self, action: Array) -> Timestep:
        timestep = super().step(action)
        buffer = self.__dict__.setdefault("buffer", np.zeros_like(timestep.obs))
        buffer[:] = timestep.obs
        return with_obs(timestep, buffer, timestep.final_obs)


class Amnesiac(Chain):
    """Its state lacks the length of the episode."""

    def state_dict(self) -> State:
        state = super().state_dict()
        state["state"]["length"][:] = 0
        return state


class Writes(Transform):
    """Scales observations in place."""

    def step(self, action: Array) -> Timestep:
        timestep = self.env.step(action)
        timestep.obs[:] = timestep.obs * 0.5
        return timestep


class Credits(Transform):
    """Reports invented returns."""

    def step(self, action: Array) -> Timestep:
        timestep = self.env.step(action)
        return replace(timestep, episodes=[replace(episode, total=episode.total + 1) for episode in timestep.episodes])


class Blinkered(Transform):
    """Halves observations in training, and not in evaluations."""

    def reset(self, seed: int) -> Timestep:
        timestep = self.env.reset(seed)
        return with_obs(timestep, timestep.obs * 0.5, timestep.obs * 0.5)

    def step(self, action: Array) -> Timestep:
        timestep = self.env.step(action)
        return with_obs(timestep, timestep.obs * 0.5, timestep.final_obs * 0.5)

    def observe(self, obs: Obs, is_first: Array) -> Obs:
        return super().observe(obs, is_first)


class Insatiable(Centered):
    """Continues to learn when it is frozen."""

    def freeze(self, state: State) -> None:
        super().freeze(state)
        self.frozen = False


class RightWalk(TensorWorld):
    """A right world of tensors; the wrong ones differ from it in one thing."""

    single_observation_space = Box(-10, 10, (1,))
    single_action_space = Discrete(2)
    time_limit = 20

    def start(self, draw: DeviceGenerator) -> Rows:
        return {"place": 2 * draw.random((self.num_envs, 1)) - 1}

    def advance(self, rows: Rows, action: torch.Tensor, draw: DeviceGenerator) -> Moved:
        noise = 0.1 * draw.random((self.num_envs, 1))
        place = rows["place"] + 0.5 * (2 * action - 1).unsqueeze(1) + noise
        return {"place": place.clamp(-9, 9)}, -place.abs().squeeze(1), place.squeeze(1).abs() > 3

    def observe(self, rows: Rows) -> torch.Tensor:
        return rows["place"].clone()


class SharesState(RightWalk):
    """Computes in the tensor that it returned."""

    def advance(self, rows: Rows, action: torch.Tensor, draw: DeviceGenerator) -> Moved:
        moved, reward, ended = super().advance(rows, action, draw)
        rows["place"].copy_(moved["place"])
        return rows, reward, ended

    def observe(self, rows: Rows) -> torch.Tensor:
        return rows["place"]


class GlobalNoise(RightWalk):
    """Draws from the generator of the process."""

    def start(self, draw: DeviceGenerator) -> Rows:
        return {"place": 2 * torch.rand((self.num_envs, 1)) - 1}


class OneDraw(RightWalk):
    """Starts all rows in the same state."""

    def start(self, draw: DeviceGenerator) -> Rows:
        return {"place": (2 * draw.random((1, 1)) - 1).expand(self.num_envs, 1).clone()}


class Asks(RightWalk):
    """Waits for a number from the device."""

    def advance(self, rows: Rows, action: torch.Tensor, draw: DeviceGenerator) -> Moved:
        if rows["place"].max().item() > 100:
            raise AssertionError
        return super().advance(rows, action, draw)


class KeepsAge(RightWalk):
    """Keeps a number outside of its rows that changes rewards."""

    def reset(self, **options: Any) -> Any:
        self.time = 0
        return super().reset(**options)

    def advance(self, rows: Rows, action: torch.Tensor, draw: DeviceGenerator) -> Moved:
        self.time += 1
        moved, reward, ended = super().advance(rows, action, draw)
        return moved, reward + self.time, ended


class NoFinal(RightWalk):
    """Resets a row in the step that ends its episode, without its last observation."""

    def step(self, action: torch.Tensor) -> Any:
        return (*super().step(action)[:4], {})


class NeverResets(RightWalk):
    """Reports resets of rows, and continues their episodes."""

    def step(self, action: torch.Tensor) -> Any:
        rows = self.rows
        _, reward, terminated, truncated, _ = super().step(action)
        self.rows, _, _ = self.advance(rows, action, self.draw)
        return self.observe(self.rows), reward, terminated, truncated, {"final_obs": self.observe(self.rows)}


class Elsewhere(RightWalk):
    """Returns rewards on another device than it declares."""

    def step(self, action: torch.Tensor) -> Any:
        obs, reward, *rest = super().step(action)
        return obs, reward.numpy(), *rest


WRONG_ENVS = {
    "TooLarge": "env-spaces", "Doubtful": "env-steps", "Uncounted": "env-steps", "Haphazard": "env-seeding",
    "Forbidding": "env-steps",
    "Reuses": "env-arrays", "Amnesiac": "env-state",
    "GlobalNoise": "env-seeding", "OneDraw": "env-device-rows", "Asks": "env-device-waits",
    "KeepsAge": "env-state", "NeverResets": "env-device-resets",
}  # fmt: skip
WRONG_WRAPPERS = {
    "Writes": "wrapper-inputs",
    "Credits": "wrapper-episodes",
    "Blinkered": "wrapper-observe",
    "Insatiable": "wrapper-learned",
}


def failures(checks: Any) -> dict[str, str]:
    return {check.name: check.outcome().message for check in checks if check.outcome().broken}


def test_right_tensor_world_passes() -> None:
    outcomes = {check.name: check.outcome() for check in env_checks(f"{HERE}:RightWalk")}
    assert {name: outcome.status for name, outcome in outcomes.items() if outcome.status != "passed"} == {
        "env-unknown": "skipped"
    }


@pytest.mark.parametrize("probe", [Chain, Continuous, Masked, Panel])
def test_right_environment_passes(probe: type[Env]) -> None:
    assert failures(env_checks(f"{probe.__module__}:{probe.__qualname__}")) == {}


@pytest.mark.parametrize(
    ("id", "error"), [("NoneSuch-v9", UnknownEnv), ("envpool:CartPole-v1", MissingPackage)], ids=["unknown", "missing"]
)
def test_unknown_environment_ends_the_checks(id: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str, num_envs: int) -> Env:
        raise error(name)

    monkeypatch.setattr(env_subject, "make_env", fail)
    with pytest.raises(error):
        env_checks(id)[0].outcome()


@pytest.mark.parametrize("name", WRONG_ENVS)
def test_wrong_environment_fails_its_check(name: str) -> None:
    assert list(failures(env_checks(f"{HERE}:{name}"))) == [WRONG_ENVS[name]]


@pytest.mark.parametrize(
    ("name", "check", "message"),
    [
        ("SharesState", "env-device", "a later step changes 'final_obs' of step 0"),
        ("NoFinal", "env-spaces", "info had no 'final_obs'"),
        ("Elsewhere", "env-spaces", "its reward is of type ndarray"),
    ],
)
def test_wrong_tensor_world_gets_a_message(name: str, check: str, message: str) -> None:
    assert message in failures(env_checks(f"{HERE}:{name}"))[check]


@pytest.mark.parametrize("name", ["Aged:step=0.5", "Tenfold", "Centered"])
def test_right_wrapper_passes(name: str) -> None:
    assert failures(wrapper_checks(f"{WRAPS}:{name}")) == {}


@pytest.mark.parametrize("name", WRONG_WRAPPERS)
def test_wrong_wrapper_fails_its_check(name: str) -> None:
    assert WRONG_WRAPPERS[name] in failures(wrapper_checks(f"{HERE}:{name}"))


RIGHT_HOOK = (
    "from rlplug_core import hookimpl\n@hookimpl\ndef rlplug_run_log(run, step): run.log_metric('own/step', step)\n"
)
WRONG_HOOKS = {
    "hooks-registered": "from rlplug_core import hookimpl\n@hookimpl\ndef rlplug_run_strat(run): ...\n",
    "hooks-events": "from rlplug_core import hookimpl\n@hookimpl\ndef rlplug_run_error(error): raise error\n",
    "hooks-options": "from rlplug_core import hookimpl\n@hookimpl\ndef rlplug_configure(config): config['seed'] = 3\n",
    "hooks-leftovers": (
        "import threading\nfrom rlplug_core import hookimpl\nstop = threading.Event()\n@hookimpl\n"
        "def rlplug_run_start(run): threading.Thread(target=stop.wait, name='postman').start()\n"
    ),
}


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(code: str) -> None:
        files = {"rlplug_talk/__init__.py": "", "rlplug_talk/hooks.py": code}
        write_distribution(tmp_path, "rlplug-talk", {"rlplug.hooks": {"talk": "rlplug_talk.hooks"}}, files)
        plugins.refresh()

    yield write
    stop = getattr(sys.modules.get("rlplug_talk.hooks"), "stop", None)
    if stop:
        stop.set()
    monkeypatch.undo()
    for name in [name for name in sys.modules if name.startswith("rlplug_talk")]:
        del sys.modules[name]
    plugins.refresh()


def test_right_hooks_pass(install: Callable[[str], None]) -> None:
    install(RIGHT_HOOK)
    assert failures(hook_checks("rlplug-talk")) == {}


@pytest.mark.parametrize("check", WRONG_HOOKS)
def test_wrong_hooks_fail_their_check(check: str, install: Callable[[str], None]) -> None:
    install(WRONG_HOOKS[check])
    assert list(failures(hook_checks("rlplug-talk"))) == [check]


class Counts:
    """Stops after thirty evaluations, and sets a level by their number."""

    reason = ""

    def __init__(self, config: object) -> None:
        self.count = 0
        self.level = 0

    def evaluated(self, evaluation: Evaluated, clock: Steering) -> None:
        self.count += 1
        self.level = self.count // 4
        if self.count == 30:
            self.stop(clock)

    def stop(self, clock: Steering) -> None:
        self.reason = "it has counted to thirty"
        clock.stop = True

    def settings(self) -> dict[str, object]:
        return {"level": self.level}

    def state_dict(self) -> State:
        return {"count": self.count, "level": self.level, "reason": self.reason}

    def load_state_dict(self, state: State) -> None:
        self.count = state["count"]
        self.level = state["level"]
        self.reason = state["reason"]


class Mute(Counts):
    def stop(self, clock: Steering) -> None:
        clock.stop = True


class Boasts(Counts):
    def stop(self, clock: Steering) -> None:
        self.reason = "it would stop"


class Forgets(Counts):
    def load_state_dict(self, state: State) -> None:
        super().load_state_dict({**state, "count": 0})


class NeverSaves(Counts):
    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None: ...


class Meddles(Counts):
    def evaluated(self, evaluation: Evaluated, clock: Steering) -> None:
        clock.steps = 0  # type: ignore[misc]


class Rolls(Counts):
    def evaluated(self, evaluation: Evaluated, clock: Steering) -> None:
        np.random.random()
        super().evaluated(evaluation, clock)


class Shuffles(Counts):
    def settings(self) -> dict[str, object]:
        random.random()
        return super().settings()


class Heaps(Counts):
    def settings(self) -> dict[str, object]:
        return {"level": object()}


WRONG_CONTROLLERS = {
    "Mute": {"controller-reason"}, "Boasts": {"controller-reason"}, "Forgets": {"controller-state"},
    "NeverSaves": {"controller-state", "controller-settings"}, "Meddles": {"controller-events"},
    "Heaps": {"controller-events"}, "Rolls": {"controller-generators"}, "Shuffles": {"controller-generators"},
}  # fmt: skip


@pytest.mark.parametrize("name", [f"{HERE}:Counts", "early-stopping:patience=3", "plateau", "target-return:target=15"])
def test_right_controller_passes(name: str) -> None:
    assert failures(controller_checks(name)) == {}


@for_each("name", WRONG_CONTROLLERS)
def test_wrong_controller_fails_its_checks(name: str) -> None:
    messages = failures(controller_checks(f"{HERE}:{name}"))
    assert {*messages} == WRONG_CONTROLLERS[name]
    assert all(len(message) > 30 for message in messages.values())


def test_documentation_lists_the_checks_of_all_kinds() -> None:
    page = (HERE.parents[3] / "docs" / "plugins" / "conformance.md").read_text(encoding="utf-8")
    documented = dict(re.findall(r"^\| `([a-z-]+)` \| (.+) \|$", page, re.MULTILINE))
    assert {rule.name: rule.summary for rules in KINDS.values() for rule in rules} == documented
