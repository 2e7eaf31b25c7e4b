"""Whatever is typed, the answer is a result or one sentence: no traceback, no internal error, nothing written.

RLPLUG_FUZZ=2000 python -m pytest tests/cli/test_fuzz.py       # `nox -s fuzz`; a small slice without it
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.fuzz import argument_lists

COUNT = int(os.environ.get("RLPLUG_FUZZ", "60"))
#: Lists a test, so that they are spread over processes.
SLICE = 20


@pytest.mark.parametrize("seed", range(COUNT // SLICE))
def test_an_answer_is_a_result_or_a_sentence(
    seed: int, place: Path, rlplug: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    for words in argument_lists(SLICE, seed):
        done = rlplug(*words)
        assert done.code in (0, 2), (words, done.code, done.err)
        assert "Traceback" not in done.err + done.out, words
        if done.code == 2:
            said = done.err.splitlines()
            assert len(said) == 1 or words[1:] == [], (words, done.err)
            assert "Error: " not in done.err, (words, done.err)
        assert list(place.iterdir()) == [], words
