"""Random arguments give a result or one sentence: no traceback, no internal error, no new files.

RLPLUG_FUZZ=2000 python -m pytest tests/cli/test_fuzz.py       # `nox -s fuzz`; without it a few
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.fuzz import argument_lists

COUNT = int(os.environ.get("RLPLUG_FUZZ", "60"))
#: Argument lists for each test, so that processes share them.
SLICE = 20


@pytest.mark.parametrize("seed", range(COUNT // SLICE))
def test_random_arguments_give_a_result_or_a_sentence(
    seed: int, place: Path, rlplug: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    for words in argument_lists(SLICE, seed):
        result = rlplug(*words)
        assert result.code in (0, 2), (words, result.code, result.err)
        assert "Traceback" not in result.err + result.out, words
        if result.code == 2:
            lines = result.err.splitlines()
            assert len(lines) == 1 or words[1:] == [], (words, result.err)
            assert "Error: " not in result.err, (words, result.err)
        assert list(place.iterdir()) == [], words
