"""Fixtures for all tests of the core."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

from rlplug_core import plugins

# A slow example on a busy machine is not a failure.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """Use one thread, as a run does: with more, small networks spend their time waiting."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=["gru", "lstm"])
def cell(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def seeded() -> Iterator[None]:
    """Give each test the same random numbers of torch."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.fixture
def no_mlflow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Disable the MLflow hook, which starts a process for each run."""
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    plugins.refresh()
    yield
    monkeypatch.undo()
    plugins.refresh()
