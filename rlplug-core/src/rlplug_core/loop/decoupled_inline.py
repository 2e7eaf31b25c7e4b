"""Actors in the learner's own process, in turn: deterministic, with a policy lag that never changes."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from rlplug_core.arrays import Either
from rlplug_core.clock import Clock
from rlplug_core.loop.actor import sort_episodes
from rlplug_core.loop.chunks import chunk_arrays, chunk_state, write
from rlplug_core.loop.plan import Plan
from rlplug_core.plugins.env_base import complete
from rlplug_core.protocols import AnyLearner, Env
from rlplug_core.types import Chunk, Episode, State, tree_map


class InlineActors:
    """Actors take turns of one chunk each. A chunk waits until `lag` more chunks exist. Without a lag,
    the learner uses each chunk at once: with one actor this equals the synchronous runner, bit for bit.
    """

    def __init__(
        self,
        plan: Plan,
        learner: AnyLearner,
        clock: Clock,
        first: Env,
    ) -> None:
        self.lag = plan.max_lag
        self.length = plan.chunk_steps
        self.inexact = first.spec.inexact
        self.device = first.spec.device
        num_envs = plan.options.num_envs
        actors = plan.options.actors
        self.actors = [
            plan.make_actor(
                plan.make_env(num_envs) if rank else first, learner, clock, rank, actors
            )
            for rank in range(actors)
        ]
        self.waiting: deque[Chunk] = deque()
        self.turn = self.version = 0
        #: The actors whose next chunk does not continue their last one.
        self.discontinuous: set[int] = set()
        self._start_chunk()

    def _start_chunk(self) -> None:
        """Start a chunk with the current weights, which are the learner's own and do not change within it."""
        self.data: State | None = None
        self.position = 0
        self.began = self.version

    def publish(self, weights: State) -> None:
        self.version += 1
        if self.position == 0:
            self.began = self.version

    def receive(self) -> list[Chunk]:
        """Take one vector step, unless a waiting chunk is ready; return the chunk that is ready, if any."""
        if len(self.waiting) <= self.lag:
            self._act()
        return [self.waiting.popleft()] if len(self.waiting) > self.lag else []

    def _act(self) -> None:
        step = self.actors[self.turn].step()
        if self.data is None:
            self.data = chunk_arrays(step, self.length)
        write(self.data, self.position, step)
        self.position += 1
        if self.position == self.length:
            self.waiting.append(
                Chunk(self.turn, self.began, self.data, self.turn in self.discontinuous)
            )
            self.discontinuous.discard(self.turn)
            self.turn = (self.turn + 1) % len(self.actors)
            self._start_chunk()

    def episodes(self) -> Sequence[tuple[int, int, Episode]]:
        return sort_episodes(actor.take_episodes() for actor in self.actors)

    def configure(self, settings: Mapping[str, object]) -> None:
        for actor in self.actors:
            complete(actor.env).configure(settings)

    def state_dict(self) -> State:
        return {
            "all": [actor.state_dict() for actor in self.actors],
            "turn": self.turn,
            "version": self.version,
            "waiting": [chunk_state(chunk) for chunk in self.waiting],
            "position": self.position,
            "began": self.began,
            "data": self.data,
            "anew": sorted(self.discontinuous),
        }

    def load_state_dict(self, state: State) -> None:
        self.turn = state["turn"]
        self.version = state["version"]
        self.position = state["position"]
        self.began = state["began"]
        self.discontinuous = set(state["anew"])
        self.data = tree_map(self._copy_leaf, state["data"])
        self.waiting = deque(
            Chunk(**tree_map(self._copy_leaf, saved)) for saved in state["waiting"]
        )
        for actor, saved in zip(self.actors, state["all"], strict=True):
            actor.load_state_dict(saved)
        if self.inexact:  # all actors have started again, apart from their earlier chunks
            self.discontinuous = set(range(len(self.actors)))
            self._start_chunk()

    def _copy_leaf(self, leaf: Either) -> Either:
        """Return a copy of an array or a tensor of a saved chunk, a tensor on the device; numbers are unchanged."""
        if isinstance(leaf, Tensor):
            return leaf.to(self.device, copy=True)
        return leaf.copy() if isinstance(leaf, np.ndarray) else leaf

    def close(self) -> None:
        for actor in self.actors:
            actor.env.close()
