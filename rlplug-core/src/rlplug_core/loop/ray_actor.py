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

#: What every call returns: the epoch of the actor, which kind of answer it is, its content.
Answer = tuple[int, str, object]


class RayActor:
    """Built at the first call, so that whatever fails is answered like everything else.

    Args:
        epoch: how many actors had this place before; it is in every answer, so that late ones are known.

    Attributes:
        acted: the number of vector steps so far: the sign of life that `pulse` gives during another call.
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
            steps: the env step that the whole run has come to.
        """
        make = partial(RemoteActor, algorithm, env, values, rank)
        return self._answer("ready", lambda: self._begin(make(), settings, state, steps))

    def configure(self, settings: Mapping[str, object]) -> Answer:
        return self._answer("configured", lambda: self.remote.configure(settings))

    def act(self, weights: Mapping[str, object], version: int, steps: int, total: int) -> Answer:
        """Act a chunk with these weights, numpy arrays, at the env step and with the total of the whole run."""
        return self._answer("chunk", lambda: self._act(weights, version, steps, total))

    def state(self) -> Answer:
        return self._answer("state", lambda: self.remote.state_dict())

    def pulse(self) -> int:
        return self.acted

    def _begin(
        self, remote: RemoteActor, settings: Mapping[str, object], state: State | None, steps: int
    ) -> None:
        self.remote = remote
        remote.configure(settings)
        if state is not None:
            remote.go_on(state, steps)
            remote.configure(settings)

    def _act(self, weights: Mapping[str, object], version: int, steps: int, total: int) -> object:
        if version != self.version:
            tree_map(
                lambda own, new: np.copyto(own.detach().numpy(), new),
                dict(self.remote.own),
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
        return version, pack(data), begins, count, [one.plain() for one in episodes]

    def _answer(self, kind: str, work: Callable[[], object]) -> Answer:
        try:
            return self.epoch, kind, work()
        except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever it was, the learner must learn of it
            reason = str(error) if isinstance(error, RlplugError) else describe(error)
            kind = "not finite" if isinstance(error, NonFinite) else "error"
            return self.epoch, kind, (reason, traceback.format_exc())
