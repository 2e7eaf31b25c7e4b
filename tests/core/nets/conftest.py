"""Fixtures of the tests of memories."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(params=["gru", "lstm"])
def cell(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def seeded() -> Iterator[None]:
    """Torch's random numbers, the same for each test."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
