"""A plugin without a base class trains like any other."""

from __future__ import annotations

from rlplug_core.clock import Clock
from rlplug_core.context import Context
from rlplug_core.loop.actor import Actor
from rlplug_core.loop.sync import Sync
from rlplug_core.seeds import Seeds
from tests.typing.inherits_nothing import Bandit, BanditConfig, Corridors


def test_trains_with_the_sync_runner() -> None:
    env = Corridors().make("corridor", 3)
    learner = Bandit(env.spec, BanditConfig(), Context(Seeds(0)))
    clock = Clock(600)
    actor = Actor(env, learner, learner.agent(), learner.buffer(), clock)
    actor.reset(0)
    runner = Sync(actor, clock)
    runner.run(lambda: None)
    assert (clock.steps, clock.updates) == (600, 200)
    assert learner.values[1] > 0.9 > learner.values[0]
    episodes = runner.episodes()
    assert {episode.total for _, _, episode in episodes} == {4}
