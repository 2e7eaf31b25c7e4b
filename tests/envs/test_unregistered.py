"""An environment that only the script registered cannot be made in processes that are not forked from it."""

from __future__ import annotations

import threading

import gymnasium
import pytest

from rlplug_core.errors import WorkerFailed
from tests.core.fakes import RUNNERS, TINY, make_runner


@pytest.mark.parametrize("case", RUNNERS)
def test_id_registered_only_in_this_process_raises_in_workers(case: str) -> None:
    """If another thread runs, processes start from a server, which has not registered it."""
    gymnasium.register("Unheard-v0", "gymnasium.envs.classic_control.cartpole:CartPoleEnv")
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        runner = make_runner(TINY, "Unheard-v0", **RUNNERS[case])
        try:
            with pytest.raises(
                WorkerFailed,
                match=r"unknown environment 'Unheard-v0'.*; .* register it in a module and write MODULE:ID",
            ):
                runner.run(lambda: None)
        finally:
            runner.close()
    finally:
        over.set()
        thread.join()
        del gymnasium.registry["Unheard-v0"]
