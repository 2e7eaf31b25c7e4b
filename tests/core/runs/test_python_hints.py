"""An error of a public function shows how to give its options in Python."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from rlplug_core.errors import UsageError
from rlplug_core.runs.api import resume, train
from rlplug_core.runs.files import shell_word
from rlplug_core.runs.python_hints import in_python
from tests.core.fakes import ENVS, TINY


def test_error_shows_the_option_in_python(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--dataset FILE") as caught:
        train(TINY, f"{ENVS}:Chain", {"offline": True}, out=tmp_path)
    assert caught.value.__notes__ == ["In Python: options={'dataset': ...}"]


@pytest.mark.parametrize(
    ("sentence", "note"),
    [
        ("use --runner sync or --env-workers 2", "In Python: options={'runner': ..., 'env_workers': ...}"),
        ("choose another place with --out", "In Python: out=..."),
        ("it failed; --traceback shows where", ""),
        ("it is finished; 'rlplug resume it --total-timesteps 9' continues", ""),
        ("it is finished; 'rlplug resume \"my runs/it\" --total-timesteps 9' continues", ""),
        ("or --no-normalize-advantage.", "In Python: options={'normalize_advantage': ...}"),
        ("a well--known name", ""),
    ],
)
def test_note_shows_options_in_python(sentence: str, note: str) -> None:
    assert in_python(sentence) == note


@pytest.mark.parametrize("path", ["runs/one", "my runs/one", 'a "b" $HOME', r"c\d `e`", "it's"])
def test_path_in_command_is_one_shell_word(path: str) -> None:
    assert subprocess.check_output(["sh", "-c", f"printf %s {shell_word(path)}"], text=True) == path


def test_commands_quote_paths_with_spaces(tmp_path: Path) -> None:
    options = {"total_timesteps": 20, "num_envs": 1, "eval_episodes": 1, "final_eval_episodes": 0}
    run = train(TINY, f"{ENVS}:Chain", options, out=tmp_path / "my runs", name="one", hooks=False)
    with pytest.raises(UsageError, match=f"'rlplug resume \"{run.path}\" --total-timesteps N' with a larger"):
        resume(run)
    with pytest.raises(UsageError, match=f"'rlplug resume \"{run.path}\"' to continue it"):
        train(TINY, f"{ENVS}:Chain", options, out=tmp_path / "my runs", name="one", hooks=False)


def test_option_as_argument_raises_with_a_note() -> None:
    call: Any = train
    with pytest.raises(TypeError, match="unexpected keyword argument 'total_timesteps'") as caught:
        call("ppo", "CartPole-v1", total_timesteps=1000)
    assert caught.value.__notes__ == ["Options go into a dictionary: train(..., {'total_timesteps': ...})"]
