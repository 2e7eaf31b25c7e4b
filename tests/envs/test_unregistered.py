"""An environment that only the script registered, in processes that do not come from it by a fork."""

from __future__ import annotations

import threading

import gymnasium
import pytest

from rlplug_core.errors import WorkerFailed
from tests.core.fakes import RUNNERS, TINY, make_runner


@pytest.mark.parametrize("case", RUNNERS)
def test_an_id_that_only_this_process_knows_is_told_as_such(case: str) -> None:
    """Beside another thread processes come from a server, which has not registered it."""
    gymnasium.register("Unheard-v0", "gymnasium.envs.classic_control.cartpole:CartPoleEnv")
    over = threading.Event()
    beside = threading.Thread(target=over.wait)
    beside.start()
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
        beside.join()
        del gymnasium.registry["Unheard-v0"]
