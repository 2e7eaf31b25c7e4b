"""`rlplug list envs` shows families without importing them, and `rlplug info ENV` describes an environment."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from PIL import Image

from rlplug_cli.render.environment import describe, results_of, results_table, text
from rlplug_core.acting.random_agent import RandomAgent
from rlplug_core.clock import Clock
from rlplug_core.plugins.families import Family, families, family_of, time_limit
from rlplug_core.plugins.presets import preset as preset_values
from rlplug_core.seeds import Seeds
from tests.cli.conftest import Result

ROOT = Path(__file__).parents[2]
CHAIN = "rlplug_core.testing.envs:Chain"


class Striped(gymnasium.Env[object, int]):
    """Three steps with rewards 0, 1 and 2; its frames are 4 pixels high and 6 wide."""

    metadata = {"render_modes": ["rgb_array"]}
    observation_space = spaces.Box(0, 3, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.at = 0

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[object, dict[str, object]]:
        self.at = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> tuple[object, float, bool, bool, dict[str, object]]:
        self.at += 1
        return np.full(2, self.at, np.float32), self.at - 1.0, self.at == 3, False, {}

    def render(self) -> object:
        return np.full((4, 6, 3), 50 + self.at, np.uint8)


def test_missing_family_shows_its_pip_command() -> None:
    absent = Family("far", "gymnasium", "", "no_such_module", "rlplug-envs[far]", "yes", ("Far-*",))
    assert not absent.installed
    assert absent.install_line == "python -m pip install 'rlplug-envs[far]'"
    assert absent.holds("Far-v1")
    assert not absent.holds("Near-v1")


def test_id_has_one_family_with_and_without_a_module() -> None:
    ids = [id for family in families() for id in family.ids]
    assert len(ids) == len(set(ids))
    family = family_of("ale_py:ALE/Pong-v5")
    assert family is not None
    assert family.name == "atari"
    assert family_of("Nothing-v0") is None
    assert [family_of(id).name for id in ("envpool:CartPole-v1", "CartPole-v1")] == ["envpool", "classic-control"]  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["classic-control", "toy-text", "box2d", "mujoco"])
def test_families_list_registered_ids(name: str) -> None:
    family = next(family for family in families() if family.name == name)
    assert set(family.ids) <= set(gymnasium.registry)


def test_list_envs_by_family(rlplug: Callable[..., Result]) -> None:
    assert "classic-control" in rlplug("list", "envs").out
    ids = rlplug("list", "envs", "--family", "atari").out
    assert "ALE/Pong-v5" in ids
    assert "CartPole-v1" not in ids
    listed = json.loads(rlplug("list", "envs", "--family", "toy-text", "--json").out)["families"]
    assert [family["family"] for family in listed] == ["toy-text"]
    assert "Taxi-v4" in listed[0]["ids"]


def test_unknown_family_gets_a_suggestion(rlplug: Callable[..., Result]) -> None:
    result = rlplug("list", "envs", "--family", "attari")
    assert result.code == 2
    assert "did you mean 'atari'" in result.err


def test_info_describes_an_environment(rlplug: Callable[..., Result]) -> None:
    facts = json.loads(rlplug("info", f"{__name__}:Striped", "--json").out)
    assert (facts["observation"], facts["action"]) == ("Box(2) of float32 in [0, 3]", "Discrete(2)")
    assert (facts["rewards"]["low"], facts["rewards"]["high"]) == (0, 2)
    assert facts["exact"]
    assert facts["kind"] == "discrete"
    assert facts["limit"] == 0
    presets = {row["algorithm"]: row["preset"] for row in facts["algorithms"]}
    assert presets["ppo"] == "kind"
    assert "sac" not in presets
    shown = rlplug("info", "ppo", f"{__name__}:Striped").out
    assert re.search(rf"^PRESET FOR {__name__}:Striped +VALUE\nnum_envs +8$", shown, re.MULTILINE)


def test_info_shows_which_presets_are_for_the_environment(rlplug: Callable[..., Result]) -> None:
    facts = json.loads(rlplug("info", "Pendulum-v1", "--json", "--env.g", "9").out)
    presets = {row["algorithm"]: row["preset"] for row in facts["algorithms"]}
    assert presets["sac"] == "id"
    assert "dqn" not in presets
    assert facts["limit"] == 200
    assert facts["family"] == "classic-control"


def test_info_shows_the_returns_of_presets(rlplug: Callable[..., Result]) -> None:
    """Only the rows of the learning tables."""
    shown = rlplug("info", "CartPole-v1").out
    assert re.search(r"^a2c +200,000 +500\.0 \(worst seed of 5\) +500\.0$", shown, re.MULTILINE)
    assert "a2c-noisy" not in shown
    rows = json.loads(rlplug("info", "CartPole-v1", "--json").out)["results"]
    assert {"algorithm": "vac", "of": "worst seed", "result": 439.5} in [
        {name: row[name] for name in ("algorithm", "of", "result")} for row in rows
    ]
    assert "PRESET OF" not in rlplug("info", f"{__name__}:Striped").out
    assert [row["algorithm"] for row in json.loads(rlplug("info", "MinAtar/Breakout-v1", "--json").out)["results"]] == [
        "ppo"
    ]


def test_results_say_seeds_and_a_length_that_differs_from_the_preset() -> None:
    path = ROOT / "rlplug-algos/src/rlplug_algos/presets/results.json"
    rows = json.loads(path.read_text(encoding="utf-8"))
    wrong = []
    for env in {row["env"] for row in rows}:
        results = results_of(env, "")
        shown = results_table(results)
        lines = {line.split()[0]: line for line in shown.splitlines() if line}
        for row in (row for row in rows if row["env"] == env):
            usual = preset_values(row["algorithm"], env).get("total_timesteps", 100_000)
            length = f"{row['steps']:,} (preset: {usual:,})" if usual != row["steps"] else f"{row['steps']:,}  "
            seeds = "one seed)" if row["seeds"] == 1 else f" of {row['seeds']})"
            line = lines.get(row["algorithm"], "")
            right = length in line and seeds in line and ("other seeds" in shown or row["seeds"] > 1)
            wrong += [] if right else [(env, row["algorithm"], line)]
    assert not wrong


def test_results_of_presets_match_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """`python bench/evidence.py` writes them."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    evidence = importlib.import_module("evidence")
    assert evidence.RESULTS.read_text(encoding="utf-8") == evidence.content()
    assert evidence.MARL_RESULTS.read_text(encoding="utf-8") == evidence.content_of_marl()
    rows = json.loads(evidence.content()) + json.loads(evidence.content_of_marl())
    assert len({(row["algorithm"], row["env"]) for row in rows}) >= 160
    assert len({row["env"] for row in rows}) >= 60


def test_damaged_results_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "presets").mkdir()
    reader = importlib.import_module("rlplug_core.plugins.result_files")
    monkeypatch.setattr(reader, "package_root", lambda _: tmp_path)
    for damaged in ('[{"algorithm": "ppo"}]', "[" * 100_000, "{}", '[{"result": "many"}]'):
        (tmp_path / "presets" / "results.json").write_text(damaged)
        assert reader.preset_results("CartPole-v1") == []
        assert capsys.readouterr().err.count("\n") >= 1


@pytest.mark.parametrize(("env", "suits"), [("mpe2.simple_spread", True), ("classic.tictactoe", False)])
def test_mappo_is_for_agents_that_act_at_the_same_time(rlplug: Callable[..., Result], env: str, suits: bool) -> None:
    facts = json.loads(rlplug("info", f"pettingzoo/{env}", "--json").out)
    names = {row["algorithm"] for row in facts["algorithms"]}
    assert ("mappo" in names) == suits
    assert {"independent", "self-play", "ppo"} <= names


def test_frame_option_writes_a_png(rlplug: Callable[..., Result], tmp_path: Path) -> None:
    result = rlplug("info", f"{__name__}:Striped", "--frame", str(tmp_path / "deep" / "first.png"))
    assert result.code == 0, result.err
    with Image.open(tmp_path / "deep" / "first.png") as picture:
        assert picture.size == (6, 4)
        assert picture.getpixel((0, 0)) == (50, 50, 50)


def test_invalid_frames_are_refused(rlplug: Callable[..., Result], tmp_path: Path) -> None:
    assert "first.png" in rlplug("info", f"{__name__}:Striped", "--frame", "first.jpg").err
    assert rlplug("info", CHAIN, "--frame", "first.png").code != 0
    assert "is not an environment" in rlplug("info", "ppo", "--frame", "first.png").err


def test_info_of_plugins_and_unknown_names(rlplug: Callable[..., Result]) -> None:
    assert "OPTION OF PPO" in rlplug("info", "ppo").out
    assert "frame-stack" in rlplug("info", "frame-stack").out
    assert "rlplug evolve ALGORITHM ENV --rule truncation:" in rlplug("info", "truncation").out
    assert "unknown environment" in rlplug("info", "CartPol-v1").err
    assert "no algorithm 'nothing'" in rlplug("info", "nothing").err


@pytest.mark.parametrize("name", ["cartpole", "CartPole", "phys2d/CartPole", "phys2d/CartPol-v1"])
def test_incomplete_id_gets_a_suggestion(name: str, rlplug: Callable[..., Result]) -> None:
    message = rlplug("info", name).err
    assert f"unknown environment '{name}'" in message
    assert "CartPole-v1'" in message
    assert "no plugin has the namespace" not in message, "it has environments of this namespace"


def test_arguments_after_an_id_name_the_option_to_use(rlplug: Callable[..., Result]) -> None:
    assert "its arguments are given as --env.gravity 9" in rlplug("info", "phys2d/CartPole-v1:gravity=9").err


def test_time_limit_text(rlplug: Callable[..., Result]) -> None:
    assert time_limit("MiniGrid-Empty-8x8-v0", 1_256) == "at most 1,256 steps"
    assert time_limit("BabyAI-GoToObj-v0", 0) == "each episode has its own, by its mission"
    assert time_limit("Nothing-v0", 0) == time_limit("Taxi-v4", 0) == "no time limit known"
    pytest.importorskip("minigrid", reason="the extra rlplug-envs[minigrid] is not installed")
    assert "at most 256 steps" in rlplug("info", "MiniGrid-Empty-8x8-v0").out
    assert "its own, by its mission" in rlplug("info", "BabyAI-GoToObj-v0").out


def test_random_agent_draws_exactly_the_allowed_actions() -> None:
    agent = RandomAgent(spaces.Discrete(4), Seeds(1))
    first = np.ones(200, np.bool_)
    assert set(agent.act(np.zeros((200, 1)), first, None, Clock(1)).action.tolist()) == {0, 1, 2, 3}
    mask = np.tile(np.array([0, 1, 0, 1], np.int8), (200, 1))
    assert set(agent.act({"action_mask": mask}, first, None, Clock(1)).action.tolist()) == {1, 3}
    again = RandomAgent(spaces.Discrete(4), Seeds(1)).act(None, first, None, Clock(1)).action
    assert (again == RandomAgent(spaces.Discrete(4), Seeds(1)).act(None, first, None, Clock(1)).action).all()


def test_info_says_whether_an_environment_resumes() -> None:
    facts = describe("Pendulum-v1", {}) | {"exact": False, "inexact": "something hides"}
    assert "exactly, but only with --resume-exact: something hides" in text(facts)
    crafter = text(facts | {"env": "CrafterReward-v1"})
    assert "no: one seed does not always give the same episodes" in crafter
    assert "--resume-exact" not in crafter
