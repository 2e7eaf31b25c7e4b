"""An actor of the decoupled runner on Ray: it acts a chunk at each call."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping

import numpy as np

from rlplug_core.config.import_string import describe
from rlplug_core.errors import NonFinite, RlplugError
from rlplug_core.loop.chunks import chunk_arrays, pack, write
from rlplug_core.loop.plan_words import PlanWords
from rlplug_core.loop.remote_actor import RemoteActor
from rlplug_core.types import State, tree_map

#: The result of every call: the kind of answer, its content.
Answer = tuple[str, object]


class RayActor:
    """An actor on a node of Ray. It is built at the first call, so that errors are returned like other answers.

    Attributes:
        acted: the number of vector steps so far; `heartbeat` returns it during another call, as a sign of life.
    """

    def __init__(self) -> None:
        self.acted = 0
        self.version = -1

    def build(
        self,
        words: PlanWords,
        rank: int,
        settings: Mapping[str, object],
        state: State | None,
        steps: int,
    ) -> Answer:
        """Build the actor; the other arguments are those of `RemoteActor.start`."""

        def start() -> None:
            self.remote = RemoteActor(words, rank)
            self.remote.start(settings, state, steps)

        return _answer("ready", start)

    def configure(self, settings: Mapping[str, object]) -> Answer:
        return _answer("configured", lambda: self.remote.configure(settings))

    def act(
        self,
        weights: Mapping[str, object],
        version: int,
        steps: int,
        total: int,
    ) -> Answer:
        """Act a chunk with these weights, numpy arrays, at the env step and with the total of the whole run."""

        def chunk() -> object:
            if version != self.version:
                tree_map(
                    lambda current, new: np.copyto(current.detach().numpy(), new),
                    dict(self.remote.weights),
                    dict(weights),
                )
                self.version = version
            data: State | None = None
            for t, step in enumerate(self.remote.steps(steps, total)):
                if data is None:
                    data = chunk_arrays(step, self.remote.length)
                write(data, t, step)
                self.acted += 1
            assert data is not None
            begins, count, episodes = self.remote.end_chunk(steps)
            return version, pack(data), begins, count, [episode.plain() for episode in episodes]

        return _answer("chunk", chunk)

    def state(self) -> Answer:
        return _answer("state", self.remote.state_dict)

    def heartbeat(self) -> int:
        return self.acted


def _answer(kind: str, work: Callable[[], object]) -> Answer:
    try:
        return kind, work()
    except (Exception, SystemExit) as error:  # noqa: BLE001  # the learner reports every exception
        reason = str(error) if isinstance(error, RlplugError) else describe(error)
        kind = "not finite" if isinstance(error, NonFinite) else "error"
        return kind, (reason, traceback.format_exc())
