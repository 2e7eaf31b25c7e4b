"""The leader of several learners: the runner in the run's own process."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, cast

import torch
import torch.multiprocessing  # registers how tensors in shared memory travel

from rlplug_core.clock import Clock
from rlplug_core.errors import RlplugError
from rlplug_core.learning.mean_gradient import LearnerLost
from rlplug_core.loop.actor import sort_episodes
from rlplug_core.loop.child_process import CLOSING, GLANCE, Child, close, silence_limit
from rlplug_core.loop.data_parallel import Member
from rlplug_core.loop.data_parallel_peer import Peer, PeerTask
from rlplug_core.loop.episode_stats import means
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.plan_words import PlanWords
from rlplug_core.loop.process_spawner import start_server_early
from rlplug_core.loop.shared_memory import share_tensor
from rlplug_core.plugins.env_base import complete
from rlplug_core.protocols import AnyLearner
from rlplug_core.types import Episode, State


class LearnerProcesses:
    """The first of several learners, and the processes of the others, which answer requests only while this one pauses.

    It sets the pace: the others follow.
    """

    name = "sync"
    on_device = False

    def __init__(self, plan: Plan, clock: Clock) -> None:
        self.plan = plan
        self.clock = clock
        start_server_early()
        self.start_count = share_tensor(torch.zeros(1, dtype=torch.int64))
        self.scale = share_tensor(torch.ones(1, dtype=torch.float64))
        self.count_view = self.start_count.numpy().data
        self.scale_view = cast("memoryview[float]", self.scale.numpy().data)
        self.member = Member(plan, clock, 0)
        self.inexact = self.member.actor.env.spec.inexact
        self.saved: Sequence[State | None] = [None] * (plan.options.learners - 1)
        #: Settings that controllers have made in the environments; whether the others have started.
        self.settings: dict[str, object] = {}
        self.joined = False
        timeout = silence_limit(False, plan.options.worker_timeout)  # until all have joined
        self.children = [
            Child("learner", rank, Peer, self._task(rank), timeout)
            for rank in range(1, plan.options.learners)
        ]

    def _task(self, rank: int) -> PeerTask:
        return PeerTask(
            words=PlanWords.of(self.plan, {"device": str(self.plan.device(rank))}),
            rank=rank,
            start_count=self.start_count,
            scale=self.scale,
        )

    def run(self, poll: Callable[[], None]) -> None:
        try:
            self._join()
            if self.joined:
                self.member.run(self, poll)
        except LearnerLost as error:
            raise self._error_of_loss(error) from error

    def start_step(self) -> None:
        # Set before the count, so that a reader of the count sees the right scale.
        self.scale_view[0] = self.clock.scale
        self.count_view[0] += 1

    def should_continue(self) -> bool:
        return not self.clock.stop

    def episodes(self) -> Sequence[tuple[int, int, Episode]]:
        return sort_episodes([self.member.actor.take_episodes(), *self._ask("episodes")])

    def metrics(self) -> Mapping[str, float]:
        return means([self.member.meter.flush(), *self._ask("metrics")])

    def configure(self, settings: Mapping[str, object]) -> None:
        self.settings = dict(settings)
        complete(self.member.actor.env).configure(settings)
        self._ask("configure", self.settings)

    def snapshot(self) -> AnyLearner:
        return self.member.learner

    def state_dict(self) -> State:
        """Return the state of all learners at the same point.

        Raises:
            RlplugError: their weights differ, so that the algorithm is not sound with several learners.
        """
        followers = self._ask("state") if self.joined else list(self.saved)
        leader = self.member.state_dict()
        self._check_alike(leader["learner"], followers)
        return {"clock": self.clock.state_dict(), **leader, "workers": {"all": followers}}

    def load_state_dict(self, state: State) -> None:
        self.clock.load_state_dict(state["clock"])
        self.member.load_state_dict(state)
        self.saved = state["workers"]["all"]

    def close(self) -> None:
        close(self.children)
        self.member.actor.env.close()

    def _join(self) -> None:
        """Build the other learners and start them at this learner's point, unless the run stops first."""
        for child in self.children:
            if not child.wait(lambda: self.clock.stop):
                return
            answer = self._listen(child, "ready")
            child.ready = True
            self.inexact = self.inexact or answer
        run_state = (self.clock.state_dict(), self.settings)
        learner = self.member.learner.state_dict()
        for child, saved in zip(self.children, self.saved, strict=True):
            child.send(("begin", (*run_state, saved, learner)))
        for child in self.children:
            self._listen(child, "begin")
        with tempfile.TemporaryDirectory(prefix="rlplug-") as folder:
            file = Path(folder) / "learners"
            for child in self.children:
                child.send(("join", file))
            self.member.mean_gradient.join(file)
            for child in self.children:
                self._listen(child, "join")
        for child in self.children:
            child.timeout = self.plan.options.worker_timeout
        self.joined = True

    def _ask(self, kind: str, content: object = None) -> list[Any]:
        """Return the answers of the other learners at this learner's point; empty before they have started."""
        if not self.joined:
            return []
        for child in self.children:
            child.send((kind, content))
        return [self._listen(child, kind) for child in self.children]

    def _listen(self, child: Child, kind: str) -> Any:
        """Wait for a learner's answer to a request of this kind; return its content."""
        child.wait()
        answer, content = child.receive()
        assert answer == kind
        return content

    def _error_of_loss(self, lost: LearnerLost) -> RlplugError:
        """Return the error of a failed gradient step: another learner's message, or how it ended."""
        connections = [peer.connection for peer in self.children]
        deadline = time.monotonic() + CLOSING
        while time.monotonic() < deadline:
            # Learners that were killed come first.
            for child in sorted(self.children, key=lambda peer: peer.process.exitcode or 0):
                if child.connection.poll() or child.process.exitcode is not None:
                    try:
                        self._listen(child, "nothing")
                    except RlplugError as error:
                        return error
            wait([*connections, *(peer.process.sentinel for peer in self.children)], GLANCE)
        return lost

    def _check_alike(
        self,
        leader: State,
        followers: Sequence[State | None],
    ) -> None:
        for rank, follower in enumerate(followers, 1):
            if follower is None:
                continue
            for name, value in leader.items():
                if isinstance(value, torch.Tensor) and not torch.equal(
                    value.cpu(), follower["learner"][name].cpu()
                ):
                    raise RlplugError(
                        f"the learners 0 and {rank} no longer have the same '{name}': {self.plan.algorithm} changes "
                        "it by the data of one learner, outside Optimizer.minimize; use one learner"
                    )
