"""The museum of bad plugins, all installed at once: everything else works, and each is named with its reason.

The tests stand in the order of a story and share one environment.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.ecosystem.conftest import Place
from tests.plugins.museum import ALGORITHMS, EXHIBITS, Exhibit, write

SHORT = ("--total-timesteps", "600", "--eval-episodes", "2", "--final-eval-episodes", "2", "--eval-every", "300")
#: Commands that only look, and what they say when all is well.
LOOKING = ("list", "plugins", "info a2c", "run a3c --help", "--help", "runs")


@pytest.fixture(scope="module")
def before(place: Place) -> dict[str, str]:
    """What commands say without the museum."""
    return {words: place.rlplug(*words.split()).stdout for words in LOOKING}


@pytest.fixture(scope="module")
def museum(place: Place, before: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The environment with every exhibit, installed in one command."""
    wheels = write(tmp_path_factory.mktemp("wheels"))
    place.pip("install", "--no-deps", "--no-compile", *map(str, wheels))
    return place


@pytest.fixture(scope="module")
def doctor(museum: Place) -> str:
    return museum.rlplug("doctor", code=3).stdout


def imported(museum: Place) -> set[str]:
    """The exhibits of which a module was imported since they were installed."""
    (site,) = museum.root.glob("lib/python*/site-packages")
    return {path.parent.name for path in site.glob("museum_*/code.imported")}


def completed(museum: Place, line: str) -> str:
    """What bash is offered behind a line."""
    number = str(len(f"{line}|".split()) - 1)
    asked = {"_RLPLUG_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": number}
    return museum.rlplug(**asked).stdout


@pytest.mark.parametrize("words", LOOKING)
def test_every_command_that_looks_works(museum: Place, before: dict[str, str], words: str) -> None:
    said = museum.rlplug(*words.split()).stdout
    if "a2c" in words or "a3c" in words or words in ("--help", "runs"):
        assert said == before[words]


def test_list_has_every_algorithm(museum: Place) -> None:
    found = json.loads(museum.rlplug("list", "--json").stdout)["algorithms"]
    rows = {(row["distribution"], row["id"]): row for row in found}
    assert {(one.name, one.id) for one in ALGORITHMS} <= rows.keys()
    assert rows["museum-escape", "escape"]["summary"] == "escape, indexed"
    assert rows["museum-slow", "slow"]["summary"] == "An exhibit"


def test_completion_works(museum: Place) -> None:
    assert {f"plain,{one.id}" for one in ALGORITHMS} <= set(completed(museum, "rlplug run ").split())
    for name in ("a3c", "syntax", "slow", "schema", "presets", "./f.py:C"):
        assert "--seed" in completed(museum, f"rlplug run {name} CartPole-v1 --se")
    assert "--loud" in completed(museum, "rlplug run escape CartPole-v1 --lo")
    assert "CartPole-v1" in completed(museum, "rlplug run ./f.py:C CartP")


@pytest.mark.parametrize("exhibit", [one for one in EXHIBITS if one.shown], ids=lambda one: one.name)
def test_doctor_names_each_with_its_reason(doctor: str, exhibit: Exhibit) -> None:
    (line,) = (line for line in doctor.splitlines() if exhibit.name in line)
    assert exhibit.shown in line


def test_nothing_was_imported_to_say_so(museum: Place, doctor: str) -> None:
    """Not the one whose import takes ten seconds either."""
    assert imported(museum) == set()


@pytest.mark.parametrize("exhibit", [one for one in ALGORITHMS if one.code_used], ids=lambda one: one.name)
def test_who_names_one_is_told_why_it_cannot_be_used(museum: Place, exhibit: Exhibit) -> None:
    done = museum.rlplug("run", exhibit.id, "CartPole-v1", code=exhibit.code_used)
    assert exhibit.used in done.stderr
    assert exhibit.code_used == 2 or f"algorithm '{exhibit.id}' of {exhibit.name} 1.0" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


@pytest.mark.parametrize("name", ["claims", "stale", "drift", "schema", "unpacked", "museum-clash/ppo"])
def test_an_algorithm_without_a_good_index_works_nevertheless(museum: Place, name: str) -> None:
    assert "--ent-coef" in museum.rlplug("run", name, "--help").stdout


@pytest.mark.parametrize("words", ["list", "plugins", "info escape", "run escape --help"])
def test_no_escape_code_reaches_a_terminal(museum: Place, words: str) -> None:
    on_a_terminal = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]))"
    said = museum.run("python", "-c", on_a_terminal, "rlplug", *words.split()).stdout
    assert "escape" in said
    assert not {"\x1b", "\x07", "\x9b"} & set(said)


def test_two_options_of_one_name_coexist(museum: Place) -> None:
    for number, kind, default in (("one", "NUMBER", "0.5"), ("two", "INTEGER", "7")):
        said = museum.rlplug("run", f"museum-twin-{number}/twin", "--help").stdout
        assert re.search(rf"--temperature {kind} +of the \w+ twin  \[{default}\]", said)


def test_output_of_a_plugin_is_not_a_result(museum: Place) -> None:
    """And the hooks that are installed, too, let the run go on: each is reported in one line, once."""
    done = museum.rlplug("run", "prints", "CartPole-v1", *SHORT, "--json", "--name", "printed")
    assert json.loads(done.stdout)["status"] == "finished"
    assert "welcome to the museum" in done.stderr
    assert tagged(museum, "printed") == "museum-misspelt/misspelt, museum-raises/raises"


def test_a_run_goes_on_beside_all_of_them(museum: Place) -> None:
    done = museum.rlplug("run", "a2c", "CartPole-v1", *SHORT, "--name", "mine")
    misspelt, raises = done.stderr.splitlines()
    assert "hook plugin 'museum-misspelt/misspelt': unknown hook 'rlplug_run_strat'" in misspelt
    assert "'museum-raises/raises' failed in rlplug_run_log and is off for this run: ValueError: not today" in raises


def tagged(museum: Place, run: str) -> str:
    """The hooks that a run's journal says have failed."""
    lines = (museum.directory / "runs" / run / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    tags: dict[str, Any] = {}
    for record in map(json.loads, lines):
        tags |= record["data"] if record["kind"] == "tag" else {}
    return str(tags["rlplug.hook_failed"])


def test_all_can_be_removed_and_then_it_is_as_before(museum: Place, before: dict[str, str]) -> None:
    museum.pip("uninstall", "--yes", *(one.name for one in EXHIBITS))
    for words in LOOKING[:-1]:
        assert museum.rlplug(*words.split()).stdout == before[words]
    assert "no algorithm 'syntax' is installed" in museum.rlplug("run", "syntax", "CartPole-v1", code=2).stderr
