"""The plugins of `examples/` are installed from wheels, run, resumed, broken and removed, as by a user.

The tests are in the order of these steps and share one environment.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import tokenize
from pathlib import Path
from typing import Any

import pytest

from rlplug_core import __version__
from tests.ecosystem.conftest import Place

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = (
    "rlplug-cem",
    "rlplug-curriculum",
    "rlplug-dyna",
    "rlplug-gridworld",
    "rlplug-gtrxl",
    "rlplug-imitation",
    "rlplug-maddpg",
    "rlplug-marl",
    "rlplug-rlpd",
    "rlplug-rnd",
    "rlplug-safe",
    "rlplug-scale",
    "rlplug-telegraph",
    "rlplug-world",
)
#: The plain run skips most of the 550 tests of the plugins: tests that train for seconds, and conformance checks except
#: those of an algorithm that samples networks and of a controller.
SLOW = "conformance or learn or imitates or solves or best_actions or novelty or td_mpc2_trains"
QUICK = f"not ({SLOW}) or test_cem or test_curriculum"
#: Options of a short run.
SHORT = (
    "--total-timesteps", "6000", "--eval-episodes", "10", "--final-eval-episodes", "10", "--checkpoint-every", "2000",
)  # fmt: skip


@pytest.fixture(scope="module")
def plugins(place: Place) -> Place:
    """The environment with the plugins, installed from wheels as from a package index."""
    wheels = sorted(Path(os.environ["RLPLUG_WHEELS"]).glob("examples/*.whl"))
    assert len(wheels) == len(NAMES)
    place.pip("install", "--no-deps", "--no-index", *map(str, wheels))
    return place


@pytest.fixture(scope="module")
def run(plugins: Place) -> Path:
    """A run of cem with the hook telegraph."""
    plugins.rlplug(
        "run", "cem", "CartPole-v1", *SHORT, "--keep-checkpoints", "9", "--name", "cem", RLPLUG_TELEGRAPH="wire.jsonl"
    )
    return plugins.directory / "runs" / "cem"


def records(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "journal.jsonl").read_text(encoding="utf-8").splitlines()]


def final_evaluation(run: Path) -> dict[str, Any]:
    (found,) = (record["data"] for record in records(run) if record["kind"] == "final_eval")
    return dict(found)


def code_lines(path: Path) -> int:
    """Lines with code: neither blank nor comment nor string statement."""
    layout = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT, tokenize.ENDMARKER}
    lines: set[int] = set()
    at_start = True
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type not in layout and not (at_start and token.type == tokenize.STRING):
            lines.update(range(token.start[0], token.end[0] + 1))
        at_start = token.type in layout
    return len(lines)


def test_packaging_of_an_algorithm_is_20_lines() -> None:
    lines = (EXAMPLES / "rlplug-cem" / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if line]) <= 20


@pytest.mark.parametrize("name", NAMES)
def test_a_plugin_is_a_whole_distribution(name: str) -> None:
    package = EXAMPLES / name / "src" / name.replace("-", "_")
    assert (package / "py.typed").is_file()
    assert sum(code_lines(path) for path in package.rglob("*.py")) <= (100 if name == "rlplug-cem" else 250)
    for part in ("README.md", "LICENSE", "pyproject.toml"):
        assert (EXAMPLES / name / part).stat().st_size > 0
    major, minor, _ = __version__.split(".")
    bounds = f'"rlplug-core>={major}.{minor},<{int(major) + 1}"'
    assert bounds in (EXAMPLES / name / "pyproject.toml").read_text(encoding="utf-8")


def test_installed_plugins_are_available(plugins: Place) -> None:
    listing = plugins.rlplug("list").stdout
    assert "The cross-entropy method on linear policies" in listing
    assert "Grid worlds: `gridworld/Room-v0`" in listing
    assert "not indexed" not in listing
    rows = {row["id"]: row for row in json.loads(plugins.rlplug("plugins", "--json").stdout)}
    assert {rows[id]["status"] for id in ("cem", "goal-curriculum", "dyna", "gridworld", "rnd", "telegraph")} == {"ok"}
    assert "--population INTEGER" in plugins.rlplug("run", "cem", "--help").stdout


def test_indices_in_wheels_are_current(plugins: Place) -> None:
    assert plugins.rlplug("index", "--check", *(name for name in NAMES if name != "rlplug-telegraph")).returncode == 0


@pytest.mark.parametrize("selection", [QUICK, pytest.param(f"not ({QUICK})", marks=pytest.mark.slow)])
def test_plugins_pass_their_own_tests(plugins: Place, selection: str) -> None:
    """One process runs all: starting it and importing torch takes longer than the tests of most plugins."""
    tests = [str(EXAMPLES / name / "tests") for name in NAMES]
    words = ("python", "-m", "pytest", *tests, "-q", "-p", "no:cacheprovider", "-k", selection)
    assert " passed" in plugins.run(*words, RLPLUG_DISABLED_PLUGINS="mlflow").stdout


def test_plugin_algorithm_trains(run: Path) -> None:
    random = 22  # the mean return of CartPole-v1 under random actions
    assert records(run)[-1]["data"] == {"status": "finished"}
    assert final_evaluation(run)["return_mean"] > 3 * random


def test_hook_plugin_writes_every_event(plugins: Place, run: Path) -> None:
    events = [json.loads(line) for line in (plugins.directory / "wire.jsonl").read_text().splitlines()]
    assert {event["run"] for event in events} == {"cem"}
    assert (events[0]["event"], events[0]["algorithm"], events[0]["env"]) == ("start", "cem", "CartPole-v1")
    assert {"log", "checkpoint"} <= {event["event"] for event in events[1:-1]}
    assert (events[-1]["event"], events[-1]["status"]) == ("end", "finished")


def test_plugin_algorithm_resumes_exactly(plugins: Place, run: Path) -> None:
    again = run.with_name("again")
    shutil.copytree(run, again)
    steps = sorted((again / "checkpoints").glob("step-*"))
    for newer in (*steps[1:], *(again / "checkpoints").glob("final-*")):
        shutil.rmtree(newer)
    plugins.rlplug("resume", str(again))
    (expected,), (resumed,) = (list(run.glob("checkpoints/final-*")) for run in (run, again))
    assert resumed.name == expected.name
    # All files without times.
    for file in ("learner", "actor", "buffer"):
        for suffix in (".json", ".safetensors"):
            assert (resumed / (file + suffix)).read_bytes() == (expected / (file + suffix)).read_bytes(), file + suffix


def test_policy_of_a_plugin_loads(plugins: Place, run: Path) -> None:
    code = (
        "import numpy, rlplug_core\n"
        f"policy = rlplug_core.load({str(run)!r})\n"
        "print(policy(numpy.ones(4, numpy.float32)), policy(numpy.ones((3, 4), numpy.float32)).shape)"
    )
    assert plugins.run("python", "-c", code).stdout.strip() in ("0 (3,)", "1 (3,)")


def test_plugin_environment_is_learned(plugins: Place) -> None:
    short = ("--total-timesteps", "12000", "--num-envs", "8", "--eval-episodes", "20", "--final-eval-episodes", "50")
    plugins.rlplug("run", "ppo", "gridworld/Room-v0", *short, "--name", "room")
    # Random actions get -37, the best -4.2.
    assert final_evaluation(plugins.directory / "runs" / "room")["return_mean"] > -10


def test_plugin_wrapper_does_not_change_returns(plugins: Place) -> None:
    short = ("--total-timesteps", "512", "--eval-episodes", "2", "--final-eval-episodes", "2", "--name", "bonus")
    assert "visit-bonus" in plugins.rlplug("list").stdout
    plugins.rlplug("run", "ppo", "gridworld/Room-v0", "--wrap", "visit-bonus:scale=100", *short)
    assert -50 <= final_evaluation(plugins.directory / "runs" / "bonus")["return_mean"] <= -1  # without the bonus


def test_unknown_environment_of_a_plugin_suggests_the_nearest(plugins: Place) -> None:
    error = plugins.rlplug("run", "ppo", "gridworld/Rom-v0", code=2).stderr
    assert "did you mean 'gridworld/Room-v0'" in error


def test_broken_plugin_can_be_removed(plugins: Place, run: Path) -> None:
    plugins.file("rlplug_cem.cem").write_text("def broken(:\n", encoding="utf-8")
    error = plugins.rlplug("run", "cem", "CartPole-v1", code=3).stderr
    assert "algorithm 'cem' of rlplug-cem 0.1.0 cannot be loaded: SyntaxError" in error
    assert "cem" in plugins.rlplug("list").stdout
    plugins.rlplug("run", "ppo", "gridworld/Room-v0", "--total-timesteps", "256", "--name", "other")
    plugins.pip("uninstall", "--yes", "rlplug-cem")
    assert "cem" not in plugins.rlplug("list").stdout
    assert "no algorithm 'cem' is installed" in plugins.rlplug("resume", str(run), code=2).stderr


def test_uninstalled_plugins_leave_nothing(plugins: Place) -> None:
    plugins.pip("uninstall", "--yes", *NAMES[1:])
    rows = json.loads(plugins.rlplug("plugins", "--json").stdout)
    assert {row["distribution"] for row in rows} == {"rlplug-core", "rlplug-algos", "rlplug-envs", "rlplug-cli"}
    error = plugins.rlplug("run", "ppo", "gridworld/Room-v0", code=2).stderr
    assert "rlplug-gridworld has it: python -m pip install rlplug-gridworld" in error
