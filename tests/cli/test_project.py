"""`rlplug.toml`: defaults of a project in a parent folder, used only if no other account can write it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from rlplug_cli.app import app
from rlplug_cli.project import find_project
from rlplug_core.errors import BadConfig
from tests.cli.conftest import SHORT

pytestmark = pytest.mark.usefixtures("no_mlflow")


def print_config(*words: str) -> str:
    result = CliRunner().invoke(app, ["run", *words, "--print-config"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def test_project_file_sets_defaults_of_runs(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They override presets, and typed options override them; the table of another algorithm does not count."""
    Path("rlplug.toml").write_text(
        "[run]\neval_episodes = 7\nnum_envs = 3\n[ppo]\ngamma = 0.5\nnet.hidden = [9]\n[dqn]\ngamma = 0.1\n"
    )
    Path("deep/er").mkdir(parents=True)
    monkeypatch.chdir("deep/er")
    text = print_config("ppo", "CartPole-v1", "--gamma", "0.75")
    assert "eval_episodes = 7 # project" in text
    assert "num_envs = 3 # project" in text
    assert "gamma = 0.75 #" in text
    assert "hidden = [9]" in text
    CliRunner().invoke(app, ["run", "ppo", "CartPole-v1", *SHORT, "--name", "one"], catch_exceptions=False)
    config = json.loads(Path("runs/one/config.json").read_text())
    assert (config["options"]["num_envs"], config["origins"]["num_envs"]) == (3, "project")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[pppo]\ngamma = 0.5\n", r"'pppo' is not a table of options; did you mean 'ppo'"),
        ("gamma = 0.5\n", r"'gamma' is not a table of options"),
        ("[run]\nwrap = ['./evil.py:Wrapper']\n", r"'wrap' names code or a path"),
        ("[ppo]\nnet.factory = 'evil:make'\n", r"'net.factory' names code or a path"),
        ("[run]\nlog = ['evil:Logger']\n", r"'log' names code or a path"),
        ("[run]\ngamma = 0.5\n", r"a run has no option 'gamma'"),
        ("[ppo]\ngamma = 5\n", r"rlplug.toml: 'gamma': expected"),
    ],
)
def test_invalid_project_file_is_refused(place: Path, text: str, message: str) -> None:
    Path("rlplug.toml").write_text(text)
    with pytest.raises(BadConfig, match=message):
        CliRunner().invoke(app, ["run", "ppo", "CartPole-v1", "--print-config"], catch_exceptions=False)


def test_project_file_that_others_can_write_is_not_used(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("rlplug.toml").write_text("[run]\neval_episodes = 7\n")
    assert find_project(Path.cwd()) == Path.cwd() / "rlplug.toml"
    Path("rlplug.toml").chmod(0o666)
    assert find_project(Path.cwd()) is None
    assert "rlplug.toml is not used, because other accounts can write it" in capsys.readouterr().err
    Path("rlplug.toml").chmod(0o644)
    Path("rlplug.toml").rename("own.toml")
    Path("rlplug.toml").symlink_to("own.toml")
    assert find_project(Path.cwd()) is not None
    theirs = SimpleNamespace(st_uid=os.getuid() + 1)
    with monkeypatch.context() as patch:  # another account made a link to a file of this account
        patch.setattr(Path, "lstat", lambda path: theirs)
        assert find_project(Path.cwd()) is None
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert find_project(Path.cwd()) is None
