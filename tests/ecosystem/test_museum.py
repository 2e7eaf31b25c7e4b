"""All bad plugins of the museum are installed at once: everything else works, and each is reported with its reason.

The tests are in the order of their steps and share one environment.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.ecosystem.conftest import Place
from tests.plugins.museum import ALGORITHMS, EXHIBITS, Exhibit, write

SHORT = ("--total-timesteps", "600", "--eval-episodes", "2", "--final-eval-episodes", "2", "--eval-every", "300")
#: Commands that only show something.
COMMANDS = ("list", "plugins", "info a2c", "run a3c --help", "--help", "runs")


@pytest.fixture(scope="module")
def before(place: Place) -> dict[str, str]:
    """The output of commands without the museum."""
    return {words: place.rlplug(*words.split()).stdout for words in COMMANDS}


@pytest.fixture(scope="module")
def museum(place: Place, before: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The environment with every exhibit, installed in one command."""
    wheels = write(tmp_path_factory.mktemp("wheels"))
    place.pip("install", "--no-deps", "--no-compile", *map(str, wheels))
    return place


@pytest.fixture(scope="module")
def doctor(museum: Place) -> str:
    return museum.rlplug("doctor", code=3).stdout


def list_imports(museum: Place) -> set[str]:
    """The exhibits with a module that was imported after the installation."""
    (site,) = museum.root.glob("lib/python*/site-packages")
    return {path.parent.name for path in site.glob("museum_*/code.imported")}


def completions(museum: Place, line: str) -> str:
    """The completions of a line in bash."""
    number = str(len(f"{line}|".split()) - 1)
    environment = {"_RLPLUG_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": number}
    return museum.rlplug(**environment).stdout


@pytest.mark.parametrize("words", COMMANDS)
def test_commands_work(museum: Place, before: dict[str, str], words: str) -> None:
    output = museum.rlplug(*words.split()).stdout
    if "a2c" in words or "a3c" in words or words in ("--help", "runs"):
        assert output == before[words]


def test_list_has_every_algorithm(museum: Place) -> None:
    found = json.loads(museum.rlplug("list", "--json").stdout)["algorithms"]
    rows = {(row["distribution"], row["id"]): row for row in found}
    assert {(exhibit.name, exhibit.id) for exhibit in ALGORITHMS} <= rows.keys()
    assert rows["museum-escape", "escape"]["summary"] == "escape, indexed"
    assert rows["museum-slow", "slow"]["summary"] == "An exhibit"


def test_completion_works(museum: Place) -> None:
    assert {f"plain,{exhibit.id}" for exhibit in ALGORITHMS} <= set(completions(museum, "rlplug run ").split())
    for name in ("a3c", "syntax", "slow", "schema", "presets", "./f.py:C"):
        assert "--seed" in completions(museum, f"rlplug run {name} CartPole-v1 --se")
    assert "--loud" in completions(museum, "rlplug run escape CartPole-v1 --lo")
    assert "CartPole-v1" in completions(museum, "rlplug run ./f.py:C CartP")


@pytest.mark.parametrize(
    "exhibit", [exhibit for exhibit in EXHIBITS if exhibit.shown], ids=lambda exhibit: exhibit.name
)
def test_doctor_reports_each_with_its_reason(doctor: str, exhibit: Exhibit) -> None:
    (line,) = (line for line in doctor.splitlines() if exhibit.name in line)
    assert exhibit.shown in line


def test_doctor_imports_no_plugin(museum: Place, doctor: str) -> None:
    """Also not the plugin with an import of ten seconds."""
    assert list_imports(museum) == set()


@pytest.mark.parametrize(
    "exhibit", [exhibit for exhibit in ALGORITHMS if exhibit.code_used], ids=lambda exhibit: exhibit.name
)
def test_bad_algorithm_raises_with_its_reason(museum: Place, exhibit: Exhibit) -> None:
    done = museum.rlplug("run", exhibit.id, "CartPole-v1", code=exhibit.code_used)
    assert exhibit.used in done.stderr
    assert exhibit.code_used == 2 or f"algorithm '{exhibit.id}' of {exhibit.name} 1.0" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


@pytest.mark.parametrize("name", ["claims", "stale", "drift", "schema", "unpacked", "museum-clash/ppo"])
def test_algorithm_without_a_valid_index_works(museum: Place, name: str) -> None:
    assert "--ent-coef" in museum.rlplug("run", name, "--help").stdout


@pytest.mark.parametrize("words", ["list", "plugins", "info escape", "run escape --help"])
def test_escape_codes_are_removed_on_terminals(museum: Place, words: str) -> None:
    on_a_terminal = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]))"
    output = museum.run("python", "-c", on_a_terminal, "rlplug", *words.split()).stdout
    assert "escape" in output
    assert not {"\x1b", "\x07", "\x9b"} & set(output)


def test_plugins_may_have_options_of_the_same_name(museum: Place) -> None:
    for number, kind, default in (("one", "NUMBER", "0.5"), ("two", "INTEGER", "7")):
        output = museum.rlplug("run", f"museum-twin-{number}/twin", "--help").stdout
        assert re.search(rf"--temperature {kind} +of the \w+ twin  \[{default}\]", output)


def test_output_of_a_plugin_goes_to_stderr(museum: Place) -> None:
    """The run continues despite the bad hooks: each is reported once in one line."""
    done = museum.rlplug("run", "prints", "CartPole-v1", *SHORT, "--json", "--name", "printed")
    assert json.loads(done.stdout)["status"] == "finished"
    assert "welcome to the museum" in done.stderr
    assert read_failed_hooks(museum, "printed") == "museum-misspelt/misspelt, museum-raises/raises"


def test_other_algorithms_train(museum: Place) -> None:
    done = museum.rlplug("run", "a2c", "CartPole-v1", *SHORT, "--name", "mine")
    misspelt, raises = done.stderr.splitlines()
    assert "hook plugin 'museum-misspelt/misspelt': unknown hook 'rlplug_run_strat'" in misspelt
    assert "'museum-raises/raises' failed in rlplug_run_log and is off for this run: ValueError: not today" in raises


def read_failed_hooks(museum: Place, run: str) -> str:
    """The failed hooks in a run's journal."""
    lines = (museum.directory / "runs" / run / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    tags: dict[str, Any] = {}
    for record in map(json.loads, lines):
        tags |= record["data"] if record["kind"] == "tag" else {}
    return str(tags["rlplug.hook_failed"])


def test_uninstalled_museum_leaves_nothing(museum: Place, before: dict[str, str]) -> None:
    museum.pip("uninstall", "--yes", *(exhibit.name for exhibit in EXHIBITS))
    for words in COMMANDS[:-1]:
        assert museum.rlplug(*words.split()).stdout == before[words]
    assert "no algorithm 'syntax' is installed" in museum.rlplug("run", "syntax", "CartPole-v1", code=2).stderr
