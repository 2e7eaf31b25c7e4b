"""An error that leaves a function for users says how Python gives the options that it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlplug_core.errors import UsageError
from rlplug_core.runs.in_python import in_python
from rlplug_core.runs.run import train
from tests.core.fakes import ENVS, TINY


def test_a_refusal_from_python_says_how_its_option_is_given_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--dataset FILE") as caught:
        train(TINY, f"{ENVS}:Chain", {"offline": True}, out=tmp_path)
    assert caught.value.__notes__ == ["In Python: options={'dataset': ...}"]


@pytest.mark.parametrize(
    ("sentence", "note"),
    [
        ("use --runner sync or --env-workers 2", "In Python: options={'runner': ..., 'env_workers': ...}"),
        ("choose another place with --out", "In Python: out=..."),
        ("it failed; --traceback shows where", ""),
        ("it is finished; 'rlplug resume it --total-timesteps 9' goes on", ""),
        ("or --no-normalize-advantage.", "In Python: options={'normalize_advantage': ...}"),
        ("a well--known name", ""),
    ],
)
def test_what_is_typed_becomes_what_is_written(sentence: str, note: str) -> None:
    assert in_python(sentence) == note
