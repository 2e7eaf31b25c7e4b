"""An agent in an environment, step by step. Rows that wait keep what they did, and what they remember.

In a world where agents act in turn most rows wait, and one whose agent is gone is absent: what it is shown is not its
turn, and a memory that took it in would hold each observation twice.
"""

from __future__ import annotations

from typing import Any

from rlplug_core.clock import Clock
from rlplug_core.protocols import Agent, Env
from rlplug_core.types import Act, Array, RecurrentState, Timestep, tree_where


class StepAgent:
    """One agent that plays, without learning; the environment begins by `seed`.

    Attributes:
        now: what was seen last.
    """

    def __init__(self, agent: Agent, env: Env, seed: int) -> None:
        self.agent = agent
        self.env = env
        self.recurrent_state = agent.initial(env.spec.num_envs)
        self.now = env.reset(seed)
        self.is_first = self.now.is_first
        self.held: Act | None = None

    def step(self, clock: Clock, explore: bool) -> Act:
        """Act in every row once; return what was done there."""
        before = self.recurrent_state
        first = self.is_first
        turn = self.now.turn
        act = self.agent.act(self.now.obs, first, before, clock, explore=explore)
        if turn is not None:
            act = self.held = holding(turn, act, self.held)
        self.now = self.env.step(act.action)
        self.is_first, self.recurrent_state = carried(self.now, act, first, before)
        return act


def holding(turn: Array, act: Act, held: Act | None) -> Act:
    """Return what each row did last in its turn; rows that wait, of the mask `turn` [N], are not asked again."""
    if held is None:
        return act
    pair = ({"action": one.action, "extras": one.extras} for one in (act, held))
    done: Any = tree_where(turn, *pair)
    return Act(done["action"], act.recurrent_state, done["extras"])


def carried(
    now: Timestep, act: Act, first: Array, before: RecurrentState
) -> tuple[Array, RecurrentState]:
    """Return `is_first` [N] and the memory with which agents see what is there `now`.

    Who was absent in this step has seen nothing, and has yet to begin if it had not begun.

    Args:
        now: what the environment said.
        act: what the agents did, and would remember.
        first: [N] `is_first` as it was when they acted.
        before: what they remembered then.
    """
    if before is None or now.count == len(now.valid):
        return now.is_first, act.recurrent_state
    return now.is_first | (first & ~now.valid), tree_where(now.valid, act.recurrent_state, before)
