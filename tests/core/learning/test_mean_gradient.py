"""The mean of gradients: its timeout counts only time in which the process runs, so a paused job loses no learner."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest
import torch

from rlplug_core.learning.mean_gradient import LearnerLost, MeanGradient
from tests.waiting import PATIENCE, until

#: Seconds that a learner waits for the others.
TIMEOUT = 2.0


def mean_of(rank: int, file: Path, late: float) -> float:
    """Return the mean of the gradients 0 and 1, `late` seconds after both have met."""
    mean = MeanGradient(rank, 2, torch.device("cpu"), TIMEOUT)
    mean.join(file)
    file.with_name(f"met-{rank}").touch()
    time.sleep(late)
    gradient = torch.full((3,), float(rank))
    mean(gradient)
    return float(gradient[0])


def learner(rank: int, file: Path, late: float) -> None:
    """Write the mean, or the kind of error, into a file."""
    torch.set_num_threads(1)
    try:
        result = str(mean_of(rank, file, late))
    except LearnerLost as error:
        result = type(error).__name__
    file.with_name(f"result-{rank}").write_text(result)


def start(folder: Path, late: float) -> list[multiprocessing.context.SpawnProcess]:
    """Start two learners; the second one is late."""
    spawn = multiprocessing.get_context("spawn")
    ranks = [spawn.Process(target=learner, args=(rank, folder / "meet", late * rank)) for rank in (0, 1)]
    for process in ranks:
        process.start()
    return ranks


def results(folder: Path, processes: list[multiprocessing.context.SpawnProcess]) -> list[str]:
    for process in processes:
        process.join(PATIENCE)
    return [(folder / f"result-{rank}").read_text() for rank in (0, 1)]


@pytest.mark.slow  # two processes that import torch, and seconds of waiting
def test_timeout_does_not_count_paused_time(tmp_path: Path) -> None:
    processes = start(tmp_path, 3.0)
    until(lambda: (tmp_path / "met-0").exists() and (tmp_path / "met-1").exists())
    for process in processes:  # the whole job, like a batch system
        os.kill(process.pid or 0, signal.SIGSTOP)
    time.sleep(4.0)
    for process in processes:
        os.kill(process.pid or 0, signal.SIGCONT)
    assert results(tmp_path, processes) == ["0.5", "0.5"]


@pytest.mark.slow
def test_late_learner_raises_learner_lost(tmp_path: Path) -> None:
    processes = start(tmp_path, 8.0)
    assert results(tmp_path, processes)[0] == "LearnerLost"
