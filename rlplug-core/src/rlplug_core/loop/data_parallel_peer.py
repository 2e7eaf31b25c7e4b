"""Run a learner that follows the leader, in a separate process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from torch import Tensor

from rlplug_core.clock import Clock
from rlplug_core.loop.child_process import CLOSE, fetch, post
from rlplug_core.loop.data_parallel import Member
from rlplug_core.loop.plan_words import PlanWords
from rlplug_core.plugins.env_base import complete
from rlplug_core.types import State

#: Checks of the leader's count between two checks for its messages.
CHECKS = 200
#: Seconds that the first check for messages waits, and the longest that a later one waits.
FIRST_WAIT = 50e-6
LONGEST_WAIT = 1e-3
#: More env steps than any run has: only the leader knows when the run ends.
ENDLESS = 2**62


@dataclass(frozen=True)
class PeerTask:
    """The input of a peer.

    Attributes:
        start_count: [1] the number of vector steps and updates that the leader has started; only the leader writes it.
        scale: [1] the factor of every learning rate.
    """

    words: PlanWords
    rank: int
    start_count: Tensor
    scale: Tensor


class Peer:
    """A learner that follows the leader: its loop waits until the leader has started each step and update."""

    def __init__(self, task: PeerTask, parent: Connection) -> None:
        plan = task.words.start("globals", task.rank).with_learner_data()
        self.clock = Clock(plan.options.total_timesteps)
        self.member = Member(plan, self.clock, task.rank)
        self.parent = parent
        #: The steps and updates that this learner has started, and `leader`: those that the leader has started.
        self.started = 0
        #: The leader's request, which waits until this learner is at the same point.
        self.request: tuple[str, object] | None = None
        self.leader = task.start_count.numpy().data
        self.scale = task.scale.numpy().data

    def run(self) -> None:
        post(self.parent, ("ready", self.member.actor.env.spec.inexact))
        if self._join():
            self.member.run(self, lambda: None)
        self.member.actor.env.close()

    def _join(self) -> bool:
        """Start at the leader's point; return False if the run ends first."""
        for _ in ("begin", "join"):
            request = fetch(self.parent)
            if request == CLOSE:
                return False
            self._answer(*request)
        return True

    def start_step(self) -> None:
        self.started += 1

    def should_continue(self) -> bool:
        wait = FIRST_WAIT
        # The leader often starts a step at once; a few checks take less time than one wait.
        while not any(self.leader[0] > self.started for _ in range(CHECKS)):
            if self.request is None and self.parent.poll(wait):
                self.request = fetch(self.parent)
            if self.request == CLOSE:
                return False
            # The leader may have started more steps before its request.
            if self.request is not None and self.leader[0] == self.started:
                request = self.request
                self.request = None
                self._answer(*request)
            wait = min(2 * wait, LONGEST_WAIT)
        self.clock.scale = float(self.scale[0])
        return True

    def _answer(self, kind: str, content: Any) -> None:
        """Answer the leader's request at the leader's own point."""
        if kind == "begin":
            self._begin(*content)
        elif kind == "join":
            self.member.mean_gradient.join(content)
        elif kind == "configure":
            complete(self.member.actor.env).configure(content)
        answers: dict[str, Callable[[], object]] = {
            "state": self.member.state_dict,
            "episodes": self.member.actor.take_episodes,
            "metrics": self.member.meter.flush,
        }
        post(self.parent, (kind, answers[kind]() if kind in answers else None))

    def _begin(
        self,
        clock: State,
        settings: dict[str, object],
        saved: State | None,
        learner: State,
    ) -> None:
        """Load the run's clock and this peer's own state, or else the leader's learner with this peer's generator."""
        member = self.member
        generator = member.learner.state_dict()["_extra_state"]["generator"]
        if settings:
            complete(member.actor.env).configure(settings)
        self.clock.load_state_dict(clock)
        if saved is None:
            extra = {**learner["_extra_state"], "generator": generator}
            member.learner.load_state_dict({**learner, "_extra_state": extra})
        else:
            member.load_state_dict(saved)
        if settings:
            complete(member.actor.env).configure(settings)
        self.clock.limit = ENDLESS
