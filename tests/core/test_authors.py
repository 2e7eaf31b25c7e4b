"""One sentence names the fault in an author's algorithm, and the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlplug_core.algorithm import Algorithm
from rlplug_core.config.import_string import load_target, place_of
from rlplug_core.config.options import Config
from rlplug_core.errors import PluginError
from rlplug_core.runs.api import train
from rlplug_core.types import Result
from tests.core.fakes import ENVS
from tests.core.wrong_algorithms import FlatExtras, Tiny

CHAIN = f"{ENVS}:Chain"
SHORT = {"total_timesteps": 40, "num_envs": 2, "eval_episodes": 1, "final_eval_episodes": 0}


class Bare(Algorithm[Any]):
    Config = Config
    runners = ("sync",)


class Empty(Bare):
    def build(self) -> None: ...


class ReturnsNone(Tiny):
    def learn(self, batch: Any, now: Any, clock: Any) -> Result:
        super().learn(batch, now, clock)
        return None  # type: ignore[return-value]


class Misspelled(Tiny):
    def build(self) -> None:
        super().build()
        self.schedule("learning_rat")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Bare, r"Bare has no build\(self\), which every algorithm needs; write one"),
        (Empty, r"Empty has no (buffer|agent)\(self"),
        (ReturnsNone, r"ReturnsNone\.learn returned None; return rl\.Result\(metrics\)"),
        (Misspelled, "Misspelled has no option 'learning_rat' to follow a schedule; did you mean 'learning_rate'"),
        (FlatExtras, r"extras\['temperature'\] has shape \(\), and there are 2 rows; give an array \[2, \.\.\.\]"),
    ],
)
def test_error_names_missing_or_wrong_value(wrong: type, message: str, tmp_path: Path) -> None:
    with pytest.raises(PluginError, match=message):
        train(wrong, CHAIN, SHORT, out=tmp_path, hooks=False)


def test_class_without_state_is_not_an_algorithm(tmp_path: Path) -> None:
    file = tmp_path / "stateless.py"
    file.write_text(
        "from rlplug_core import Config\n\n\nclass Stateless:\n    Config, runners = Config, ('sync',)\n"
        "    def agent(self): ...\n    def buffer(self): ...\n    def update(self, batch, clock): ...\n"
    )
    with pytest.raises(PluginError, match="it has no 'state_dict'"):
        train(f"{file}:Stateless", CHAIN, SHORT, out=tmp_path / "runs", hooks=False)


def test_error_names_the_authors_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("import numpy as np\n\n\ndef loss(x):\n    return np.concatenate(x)\n")
    with pytest.raises(ValueError, match="need at least one array") as raised:
        load_target(f"{file}:loss", "function")([])
    assert place_of(raised.value) == " (mine.py:5, in loss)"
    assert place_of(ValueError("of nobody")) == ""
