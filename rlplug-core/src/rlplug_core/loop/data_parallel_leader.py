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
from rlplug_core.errors import RlplugError, WorkerFailed
from rlplug_core.learning.mean_gradient import LearnerLost
from rlplug_core.loop.actor import sort_episodes
from rlplug_core.loop.async_inline import mean_of
from rlplug_core.loop.async_processes import CLOSING, GLANCE, Remote, close, patience, silence
from rlplug_core.loop.data_parallel import Member
from rlplug_core.loop.data_parallel_peer import PeerTask, work
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.process_spawner import prepare
from rlplug_core.loop.shared_memory import share_tensor
from rlplug_core.loop.worker import check_message, fetch, post
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
        prepare()
        self.start_count = share_tensor(torch.zeros(1, dtype=torch.int64))
        self.scale = share_tensor(torch.ones(1, dtype=torch.float64))
        self.count_view = self.start_count.numpy().data
        self.scale_view = cast("memoryview[float]", self.scale.numpy().data)
        self.member = Member(plan, clock, 0, plan.make_env(plan.options.num_envs))
        self.inexact = self.member.actor.env.spec.inexact
        self.saved: Sequence[State | None] = [None] * (plan.options.learners - 1)
        #: Settings that controllers have made in the environments; whether the others have started.
        self.settings: dict[str, object] = {}
        self.joined = False
        self.remotes = [
            Remote(rank, work, self._task(rank)) for rank in range(1, plan.options.learners)
        ]

    def _task(self, rank: int) -> PeerTask:
        values = {**self.plan.flat, "device": str(self.plan.device(rank))}
        return PeerTask(
            algorithm=self.plan.algorithm,
            env=self.plan.env,
            values=values,
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
        return mean_of([self.member.meter.flush(), *self._ask("metrics")])

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
        close(self.remotes)
        self.member.actor.env.close()

    def _join(self) -> None:
        """Build the other learners and start them at this learner's point, unless the run stops first."""
        limit = patience(False, self.plan.options.worker_timeout)
        for remote in self.remotes:
            if not self._wait_for_message(remote, limit, until_stop=True):
                return
            answer = self._listen(remote, "ready", limit)
            remote.ready = True
            self.inexact = self.inexact or answer
        run_state = (self.clock.state_dict(), self.settings)
        learner = self.member.learner.state_dict()
        for remote, saved in zip(self.remotes, self.saved, strict=True):
            self._send(remote, ("begin", (*run_state, saved, learner)))
        for remote in self.remotes:
            self._listen(remote, "begin", limit)
        with tempfile.TemporaryDirectory(prefix="rlplug-") as folder:
            file = Path(folder) / "learners"
            for remote in self.remotes:
                self._send(remote, ("join", file))
            self.member.mean.join(file)
            for remote in self.remotes:
                self._listen(remote, "join", limit)
        self.joined = True

    def _ask(self, kind: str, content: object = None) -> list[Any]:
        """Return the answers of the other learners at this learner's point; empty before they have started."""
        if not self.joined:
            return []
        for remote in self.remotes:
            self._send(remote, (kind, content))
        return [
            self._listen(remote, kind, self.plan.options.worker_timeout) for remote in self.remotes
        ]

    def _send(self, remote: Remote, message: object) -> None:
        try:
            post(remote.connection, message)
        except OSError:
            raise self._died(remote) from None

    def _listen(self, remote: Remote, kind: str, limit: float) -> Any:
        """Return the answer of a learner, which has this kind unless the learner failed."""
        self._wait_for_message(remote, limit)
        try:
            answer, content = fetch(remote.connection)
        except (EOFError, OSError):
            raise self._died(remote) from None
        check_message(f"learner {remote.rank}", answer, content)
        assert answer == kind
        return content

    def _wait_for_message(
        self,
        remote: Remote,
        limit: float,
        until_stop: bool = False,
    ) -> bool:
        """Wait for a message of a learner; return False if the run stops first and `until_stop` is set.

        Raises:
            WorkerFailed: it has ended, or sent nothing for `limit` seconds.
        """
        remote.silent = 0.0
        checked = time.monotonic()
        while not remote.connection.poll(GLANCE):
            before = checked
            checked = time.monotonic()
            if until_stop and self.clock.stop:
                return False
            # The learner's children may hold its pipe open.
            if remote.process.exitcode is not None and not remote.connection.poll():
                raise self._died(remote)
            if remote.is_overdue(checked - before, limit):
                raise self._fail(
                    remote, silence(remote.ready, limit), " (--worker-timeout waits longer)"
                )
        return True

    def _error_of_loss(self, lost: LearnerLost) -> RlplugError:
        """Return the error of a failed gradient step: another learner's message, or how it ended."""
        connections = [peer.connection for peer in self.remotes]
        deadline = time.monotonic() + CLOSING
        while time.monotonic() < deadline:
            # Learners that were killed come first.
            for remote in sorted(self.remotes, key=lambda peer: peer.process.exitcode or 0):
                if remote.connection.poll() or remote.process.exitcode is not None:
                    try:
                        self._listen(remote, "nothing", 0.0)
                    except RlplugError as error:
                        return error
            wait([*connections, *(peer.process.sentinel for peer in self.remotes)], GLANCE)
        return lost

    def _died(self, remote: Remote) -> WorkerFailed:
        return self._fail(remote, remote.describe_exit())

    def _fail(
        self,
        remote: Remote,
        how: str,
        advice: str = "",
    ) -> WorkerFailed:
        return WorkerFailed(f"learner {remote.rank} {how}{advice}", f"learner {remote.rank} {how}")

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
