"""An actor of the decoupled runner on Ray: it acts a chunk at each call."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from rlplug_core.config.import_string import describe
from rlplug_core.errors import NonFinite, RlplugError
from rlplug_core.loop.chunks import chunk_arrays, pack, write
from rlplug_core.loop.remote_actor import RemoteActor
from rlplug_core.types import State, tree_map

#: The result of every call: the epoch of the actor, the kind of answer, its content.
Answer = tuple[int, str, object]


class RayActor:
    """An actor on a node of Ray. It is built at the first call, so that errors are returned like other answers.

    Args:
        epoch: how many actors had this place before. Answers contain it, so that those of lost actors are dropped.

    Attributes:
        acted: the number of vector steps so far; `heartbeat` returns it during another call, as a sign of life.
    """

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.acted = 0
        self.version = -1

    def begin(
        self,
        algorithm: str,
        env: str,
        values: dict[str, object],
        rank: int,
        settings: Mapping[str, object],
        state: State | None,
        steps: int,
    ) -> Answer:
        """Build the actor with the controllers' settings, and let it continue from a state if there is one.

        Args:
            steps: the current env step of the whole run.
        """
        make = partial(RemoteActor, algorithm, env, values, rank)
        return self._answer("ready", lambda: self._begin(make(), settings, state, steps))

    def configure(self, settings: Mapping[str, object]) -> Answer:
        return self._answer("configured", lambda: self.remote.configure(settings))

    def act(
        self,
        weights: Mapping[str, object],
        version: int,
        steps: int,
        total: int,
    ) -> Answer:
        """Act a chunk with these weights, numpy arrays, at the env step and with the total of the whole run."""
        return self._answer("chunk", lambda: self._act(weights, version, steps, total))

    def state(self) -> Answer:
        return self._answer("state", lambda: self.remote.state_dict())

    def heartbeat(self) -> int:
        return self.acted

    def _begin(
        self,
        remote: RemoteActor,
        settings: Mapping[str, object],
        state: State | None,
        steps: int,
    ) -> None:
        self.remote = remote
        remote.configure(settings)
        if state is not None:
            remote.continue_from(state, steps)
            remote.configure(settings)

    def _act(
        self,
        weights: Mapping[str, object],
        version: int,
        steps: int,
        total: int,
    ) -> object:
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

    def _answer(self, kind: str, work: Callable[[], object]) -> Answer:
        try:
            return self.epoch, kind, work()
        except (Exception, SystemExit) as error:  # noqa: BLE001  # the learner reports every exception
            reason = str(error) if isinstance(error, RlplugError) else describe(error)
            kind = "not finite" if isinstance(error, NonFinite) else "error"
            return self.epoch, kind, (reason, traceback.format_exc())
