"""What holds for all tests of the core."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

from rlplug_core import plugins

# An example that takes long on a busy machine is no failure.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """As in a run: more threads than that only wait for each other on networks as small as these."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=["gru", "lstm"])
def cell(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def seeded() -> Iterator[None]:
    """Torch's random numbers, the same for each test."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.fixture
def no_mlflow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave the mirror out of runs with hooks: it would start a process for each."""
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    plugins.refresh()
    yield
    monkeypatch.undo()
    plugins.refresh()
