"""The output of `--json` matches the schemas in `docs/schemas`; other tests check those of sweeps."""

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
from tests.cli.conftest import Result
from tests.tables import for_each

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
CHAIN = "rlplug_core.testing.envs:Chain"
#: Commands with the same output as another one.
SAME = {"resume": "run"}
#: Commands in a directory with a run named `one` and an unreadable run.
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
def runs_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    options = {"total_timesteps": 60, "eval_every": 30, "eval_episodes": 2, "final_eval_episodes": 2}
    train("a2c", CHAIN, options, out=place / "runs", name="one", hooks=False)
    (place / "runs" / "bad").mkdir()
    (place / "runs" / "bad" / "config.json").write_text("{")
    return place


def schema(command: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((SCHEMAS / f"{SAME.get(command, command)}.json").read_bytes())
    return content


@pytest.mark.parametrize("words", CASES.values(), ids=CASES)
def test_output_matches_the_schema(
    words: list[str], runs_directory: Path, place: Path, rlplug: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    monkeypatch.chdir(runs_directory)
    result = rlplug(*words, "--json")
    assert result.code == 0, result.err
    jsonschema.validate(json.loads(result.out), schema(words[0]))


def test_outcome_of_a_check_matches_the_schema() -> None:
    first = checks("a2c")[0]
    for kind in ("algorithm", "env", "wrapper", "controller", "hooks"):
        jsonschema.validate(_report(kind, "a2c", [(first, Outcome("passed", "fine", 0.5))]), schema("check"))


def test_commands_with_json_have_a_schema() -> None:
    commands = set()
    for name in COMMANDS:
        command = app.get_command(click.Context(app), name)
        assert command is not None
        flags = {flag for parameter in command.params for flag in parameter.opts}
        if "--json" in flags or name == "run":
            commands.add(SAME.get(name, name))
    assert {path.stem for path in SCHEMAS.glob("*.json")} == commands


@for_each("path", sorted(SCHEMAS.glob("*.json")))
def test_schema_is_valid_and_refuses_other_data(path: Path) -> None:
    content = json.loads(path.read_bytes())
    jsonschema.Draft202012Validator.check_schema(content)
    assert "--json" in content["title"]
    assert not jsonschema.Draft202012Validator(content).is_valid({"nothing": 1})
