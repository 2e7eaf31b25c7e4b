"""`rlplug list envs` and `rlplug info ENV`: families without importing any, and what an environment is."""

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
from tests.cli.conftest import Done

ROOT = Path(__file__).parents[2]
CHAIN = "rlplug_core.testing.envs:Chain"


class Striped(gymnasium.Env[object, int]):
    """Three steps of reward 0, 1 and 2; drawn as a picture whose height and width differ."""

    metadata = {"render_modes": ["rgb_array"]}
    observation_space = spaces.Box(0, 3, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode, self.at = render_mode, 0

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[object, dict[str, object]]:
        self.at = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> tuple[object, float, bool, bool, dict[str, object]]:
        self.at += 1
        return np.full(2, self.at, np.float32), self.at - 1.0, self.at == 3, False, {}

    def render(self) -> object:
        return np.full((4, 6, 3), 50 + self.at, np.uint8)


def test_families_say_how_to_install_what_is_missing() -> None:
    absent = Family("far", "gymnasium", "", "no_such_module", "rlplug-envs[far]", "yes", ("Far-*",))
    assert not absent.installed
    assert absent.install_line == "python -m pip install 'rlplug-envs[far]'"
    assert absent.holds("Far-v1")
    assert not absent.holds("Near-v1")


def test_an_id_is_in_one_family_and_has_it_whatever_module_is_named_before_it() -> None:
    every = [id for family in families() for id in family.ids]
    assert len(every) == len(set(every))
    found = family_of("ale_py:ALE/Pong-v5")
    assert found is not None
    assert found.name == "atari"
    assert family_of("Nothing-v0") is None
    assert [family_of(id).name for id in ("envpool:CartPole-v1", "CartPole-v1")] == ["envpool", "classic-control"]  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["classic-control", "toy-text", "box2d", "mujoco"])
def test_families_list_what_gymnasium_registers(name: str) -> None:
    found = next(family for family in families() if family.name == name)
    assert set(found.ids) <= set(gymnasium.registry)


def test_envs_are_listed_by_family(rlplug: Callable[..., Done]) -> None:
    assert "classic-control" in rlplug("list", "envs").out
    ids = rlplug("list", "envs", "--family", "atari").out
    assert "ALE/Pong-v5" in ids
    assert "CartPole-v1" not in ids
    listed = json.loads(rlplug("list", "envs", "--family", "toy-text", "--json").out)["families"]
    assert [family["family"] for family in listed] == ["toy-text"]
    assert "Taxi-v4" in listed[0]["ids"]


def test_a_family_that_is_not_there_has_near_names(rlplug: Callable[..., Done]) -> None:
    done = rlplug("list", "envs", "--family", "attari")
    assert done.code == 2
    assert "did you mean 'atari'" in done.err


def test_an_environment_says_what_it_is(rlplug: Callable[..., Done]) -> None:
    found = json.loads(rlplug("info", f"{__name__}:Striped", "--json").out)
    assert (found["observation"], found["action"]) == ("Box(2) of float32 in [0, 3]", "Discrete(2)")
    assert (found["rewards"]["low"], found["rewards"]["high"]) == (0, 2)
    assert found["exact"]
    assert found["kind"] == "discrete"
    assert found["limit"] == 0
    by = {one["algorithm"]: one["preset"] for one in found["algorithms"]}
    assert by["ppo"] == "kind"
    assert "sac" not in by


def test_an_environment_with_a_preset_of_its_own_says_so(rlplug: Callable[..., Done]) -> None:
    found = json.loads(rlplug("info", "Pendulum-v1", "--json", "--env.g", "9").out)
    by = {one["algorithm"]: one["preset"] for one in found["algorithms"]}
    assert by["sac"] == "id"
    assert "dqn" not in by
    assert found["limit"] == 200
    assert found["family"] == "classic-control"


def test_presets_are_shown_with_what_they_reach(rlplug: Callable[..., Done]) -> None:
    """The rows of the learning tables, and no other ones."""
    shown = rlplug("info", "CartPole-v1").out
    assert re.search(r"^a2c +200,000 +500\.0 \(worst seed of 5\) +500\.0$", shown, re.MULTILINE)
    assert "a2c-noisy" not in shown
    found = json.loads(rlplug("info", "CartPole-v1", "--json").out)["results"]
    assert {"algorithm": "vac", "of": "worst seed", "result": 439.5} in [
        {name: one[name] for name in ("algorithm", "of", "result")} for one in found
    ]
    assert "PRESET OF" not in rlplug("info", f"{__name__}:Striped").out
    assert [one["algorithm"] for one in json.loads(rlplug("info", "MinAtar/Breakout-v1", "--json").out)["results"]] == [
        "ppo"
    ]


def test_every_result_tells_one_seed_and_another_length_than_the_preset() -> None:
    path = ROOT / "rlplug-algos/src/rlplug_algos/presets/results.json"
    rows = json.loads(path.read_text(encoding="utf-8"))
    wrong = []
    for env in {one["env"] for one in rows}:
        found = results_of(env, "")
        shown = results_table(found)
        lines = {line.split()[0]: line for line in shown.splitlines() if line}
        for one in (row for row in rows if row["env"] == env):
            usual = preset_values(one["algorithm"], env).get("total_timesteps", 100_000)
            length = f"{one['steps']:,} (preset: {usual:,})" if usual != one["steps"] else f"{one['steps']:,}  "
            seeds = "one seed)" if one["seeds"] == 1 else f" of {one['seeds']})"
            line = lines.get(one["algorithm"], "")
            right = length in line and seeds in line and ("other seeds" in shown or one["seeds"] > 1)
            wrong += [] if right else [(env, one["algorithm"], line)]
    assert not wrong


def test_the_results_of_presets_are_those_of_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """`python bench/evidence.py` copies them."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    evidence = importlib.import_module("evidence")
    assert evidence.RESULTS.read_text(encoding="utf-8") == evidence.content()
    assert evidence.MARL_RESULTS.read_text(encoding="utf-8") == evidence.content_of_marl()
    rows = json.loads(evidence.content()) + json.loads(evidence.content_of_marl())
    assert len({(one["algorithm"], one["env"]) for one in rows}) >= 160
    assert len({one["env"] for one in rows}) >= 60


def test_damaged_results_hide_nothing_else(
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
def test_mappo_is_for_agents_that_act_at_once(rlplug: Callable[..., Done], env: str, suits: bool) -> None:
    found = json.loads(rlplug("info", f"pettingzoo/{env}", "--json").out)
    names = {one["algorithm"] for one in found["algorithms"]}
    assert ("mappo" in names) == suits
    assert {"independent", "self-play", "ppo"} <= names


def test_the_first_frame_is_a_png(rlplug: Callable[..., Done], tmp_path: Path) -> None:
    done = rlplug("info", f"{__name__}:Striped", "--frame", str(tmp_path / "deep" / "first.png"))
    assert done.code == 0, done.err
    with Image.open(tmp_path / "deep" / "first.png") as picture:
        assert picture.size == (6, 4)
        assert picture.getpixel((0, 0)) == (50, 50, 50)


def test_a_frame_that_cannot_be_is_refused_in_one_sentence(rlplug: Callable[..., Done], tmp_path: Path) -> None:
    assert "first.png" in rlplug("info", f"{__name__}:Striped", "--frame", "first.jpg").err
    assert rlplug("info", CHAIN, "--frame", "first.png").code != 0
    assert "is not an environment" in rlplug("info", "ppo", "--frame", "first.png").err


def test_errors_of_unknown_environments_stay_unchanged(rlplug: Callable[..., Done]) -> None:
    assert "OPTION OF PPO" in rlplug("info", "ppo").out
    assert "frame-stack" in rlplug("info", "frame-stack").out
    assert "unknown environment" in rlplug("info", "CartPol-v1").err
    assert "no algorithm 'nothing'" in rlplug("info", "nothing").err


@pytest.mark.parametrize("name", ["cartpole", "CartPole", "phys2d/CartPole", "phys2d/CartPol-v1"])
def test_an_incomplete_id_is_one_of_an_environment(name: str, rlplug: Callable[..., Done]) -> None:
    said = rlplug("info", name).err
    assert f"unknown environment '{name}'" in said
    assert "CartPole-v1'" in said
    assert "no plugin has the namespace" not in said, "it has environments of this namespace"


def test_arguments_behind_an_id_are_told_where_they_go(rlplug: Callable[..., Done]) -> None:
    assert "its arguments are given as --env.gravity 9" in rlplug("info", "phys2d/CartPole-v1:gravity=9").err


def test_a_time_limit_in_words(rlplug: Callable[..., Done]) -> None:
    assert time_limit("MiniGrid-Empty-8x8-v0", 1_256) == "at most 1,256 steps"
    assert time_limit("BabyAI-GoToObj-v0", 0) == "each episode has its own, by its mission"
    assert time_limit("Nothing-v0", 0) == time_limit("Taxi-v4", 0) == "no time limit known"
    pytest.importorskip("minigrid", reason="the extra rlplug-envs[minigrid] is not installed")
    assert "at most 256 steps" in rlplug("info", "MiniGrid-Empty-8x8-v0").out
    assert "its own, by its mission" in rlplug("info", "BabyAI-GoToObj-v0").out


def test_a_random_agent_draws_everything_that_is_allowed_and_nothing_else() -> None:
    agent, first = RandomAgent(spaces.Discrete(4), Seeds(1)), np.ones(200, np.bool_)
    assert set(agent.act(np.zeros((200, 1)), first, None, Clock(1)).action.tolist()) == {0, 1, 2, 3}
    mask = np.tile(np.array([0, 1, 0, 1], np.int8), (200, 1))
    assert set(agent.act({"action_mask": mask}, first, None, Clock(1)).action.tolist()) == {1, 3}
    again = RandomAgent(spaces.Discrete(4), Seeds(1)).act(None, first, None, Clock(1)).action
    assert (again == RandomAgent(spaces.Discrete(4), Seeds(1)).act(None, first, None, Clock(1)).action).all()


def test_families_declare_whether_their_environments_resume() -> None:
    found = describe("Pendulum-v1", {}) | {"exact": False, "inexact": "something hides"}
    assert "exactly, but only with --resume-exact: something hides" in text(found)
    crafter = text(found | {"env": "CrafterReward-v1"})
    assert "no: one seed does not always give the same episodes" in crafter
    assert "--resume-exact" not in crafter
