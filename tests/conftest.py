"""Fixtures of all tests: a state directory of their own, default signals, a time limit for quick checks."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

import rlplug_core  # noqa: F401 - before numpy, which reads its environment variables once

#: Seconds after which tests are skipped; `nox -s quick` sets it.
SECONDS = "RLPLUG_TEST_SECONDS"
STARTED = time.monotonic()


def pytest_runtest_setup(item: pytest.Item) -> None:
    seconds = os.environ.get(SECONDS)
    if seconds and time.monotonic() - STARTED > float(seconds):
        pytest.skip(f"{seconds} seconds are over; `nox -s tests` runs all tests")


@pytest.fixture(autouse=True, scope="session")
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the key that signs runs in a temporary directory."""
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
    yield
    del os.environ["XDG_STATE_HOME"]
    if before is not None:
        os.environ["XDG_STATE_HOME"] = before


@pytest.fixture(autouse=True, scope="session")
def heard_signals() -> None:
    """Restore default signal handlers: a shell ignores SIGINT for a background command, and runs inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture(params=["numpy", "numba"], scope="module")
def loops(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run all tests of a module without numba, then with it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NUMBA_DISABLE_JIT", "1" if request.param == "numpy" else "0")
        if request.param == "numba":
            pytest.importorskip("numba").config.reload_config()
        forget_loops()
        yield request.param
    forget_loops()


def forget_loops() -> None:
    from rlplug_core.fast.numba_loops import has_scipy, loop_module, why_not_numba
    from rlplug_core.fast.parallel_dense import pass_loops

    for cached in (why_not_numba, loop_module, has_scipy, pass_loops):
        cached.cache_clear()
