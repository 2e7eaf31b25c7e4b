"""What a command writes with `--json` is what its schema in `docs/schemas` says; those of sweeps are held elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest

from rlplug_cli.app import COMMANDS, app
from rlplug_cli.commands.check import _report
from rlplug_core.runs.api import train
from rlplug_core.testing import checks
from rlplug_core.testing.kit.outcome import Outcome
from tests.cli.conftest import Done
from tests.tables import for_each

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
CHAIN = "rlplug_core.testing.envs:Chain"
#: Commands that write what another one writes.
SAME = {"resume": "run"}
#: A run named `one` is there, and one that cannot be read.
CASES = {
    "runs": ["runs"],
    "show": ["show", "one"],
    "list": ["list"],
    "list that is filtered": ["list", "--actions", "Box"],
    "list of environments": ["list", "envs"],
    "plugins": ["plugins"],
    "search": ["search", "actor"],
    "info": ["info", "a2c"],
    "info of a pair": ["info", "ppo", "CartPole-v1"],
    "info of a wrapper": ["info", "frame-stack"],
    "info of an environment": ["info", "CartPole-v1"],
    "evaluate": ["evaluate", "one", "--episodes", "2"],
    "evaluate all": ["evaluate", "one", "--episodes", "2", "--all-checkpoints"],
    "reproduce": ["reproduce", "one"],
    "run": ["run", "a2c", CHAIN, "--total-timesteps", "40", "--eval-episodes", "1", "--final-eval-episodes", "1"],
    "resume": ["resume", "one", "--total-timesteps", "80"],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("made")
    options = {"total_timesteps": 60, "eval_every": 30, "eval_episodes": 2, "final_eval_episodes": 2}
    train("a2c", CHAIN, options, out=place / "runs", name="one", hooks=False)
    (place / "runs" / "bad").mkdir()
    (place / "runs" / "bad" / "config.json").write_text("{")
    return place


def schema(command: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SCHEMAS / f"{SAME.get(command, command)}.json").read_bytes())
    return found


@pytest.mark.parametrize("words", CASES.values(), ids=CASES)
def test_written_records_match_the_schema(
    words: list[str], made: Path, place: Path, rlplug: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    monkeypatch.chdir(made)
    done = rlplug(*words, "--json")
    assert done.code == 0, done.err
    jsonschema.validate(json.loads(done.out), schema(words[0]))


def test_an_outcome_of_a_check_is_what_its_schema_says() -> None:
    first = checks("a2c")[0]
    for kind in ("algorithm", "env", "wrapper", "controller", "hooks"):
        jsonschema.validate(_report(kind, "a2c", [(first, Outcome("passed", "fine", 0.5))]), schema("check"))


def test_every_command_that_writes_json_has_a_schema() -> None:
    found = set()
    for name in COMMANDS:
        command = app.get_command(click.Context(app), name)
        assert command is not None
        flags = {flag for one in command.params for flag in one.opts}
        if "--json" in flags or name == "run":
            found.add(SAME.get(name, name))
    assert {path.stem for path in SCHEMAS.glob("*.json")} == found


@for_each("path", sorted(SCHEMAS.glob("*.json")))
def test_a_schema_is_one_and_refuses_something(path: Path) -> None:
    found = json.loads(path.read_bytes())
    jsonschema.Draft202012Validator.check_schema(found)
    assert "--json" in found["title"]
    assert not jsonschema.Draft202012Validator(found).is_valid({"nothing": 1})
