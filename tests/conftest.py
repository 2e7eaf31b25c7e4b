"""What all tests share: nothing of them is written into the account's own directories."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

import rlplug_core  # noqa: F401 - before numpy, whose library reads once what it is told, as in other processes


@pytest.fixture(autouse=True, scope="session")
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The key that runs are sealed with is one of this session."""
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
    yield
    del os.environ["XDG_STATE_HOME"]
    if before is not None:
        os.environ["XDG_STATE_HOME"] = before


@pytest.fixture(autouse=True, scope="session")
def heard_signals() -> None:
    """No signal is ignored, as whoever starts the tests in the background makes it; runs would leave it so."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture(params=["numpy", "numba"], scope="module")
def loops(request: pytest.FixtureRequest) -> Iterator[str]:
    """Loops over numbers by numpy, and then by numba, in all tests of a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NUMBA_DISABLE_JIT", "1" if request.param == "numpy" else "0")
        if request.param == "numba":
            pytest.importorskip("numba").config.reload_config()
        _forget_loops()
        yield request.param
    _forget_loops()


def _forget_loops() -> None:
    from rlplug_core.learning.loops import learning_loops
    from rlplug_core.nets.loops import acting_loops, has_scipy, head_loops, memory_loops, why_not_numba
    from rlplug_core.nets.passes import pass_loops

    for cached in (why_not_numba, acting_loops, head_loops, memory_loops, learning_loops, has_scipy, pass_loops):
        cached.cache_clear()
