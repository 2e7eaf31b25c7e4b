"""Films of evaluations during training; if a film fails, training continues."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rlplug_core.clock import Clock
from rlplug_core.config.files import hold_directory
from rlplug_core.errors import UsageError, plain, warn
from rlplug_core.films.film import Films, film, usual_suffix
from rlplug_core.films.player import Reel, play
from rlplug_core.loop.plan import Plan
from rlplug_core.plugins.env_base import complete
from rlplug_core.plugins.transform import freeze
from rlplug_core.protocols import AnyLearner
from rlplug_core.runs.watching import VIDEOS, make_shown_env
from rlplug_core.types import State

#: Steps after which an episode is cut in a film.
LONGEST = 5_000


@dataclass
class Recorder:
    """Films an episode with the current weights, in a separate environment, into `videos/step-….mp4`.

    The first film is made at the first evaluation, each further one at least `every` env steps after the one before.
    """

    plan: Plan
    run: Path
    every: int

    def __post_init__(self) -> None:
        names = [path.stem.rpartition("-")[2] for path in (self.run / VIDEOS).glob("step-*")]
        #: The env step of the last film.
        self.filmed = max((int(name) for name in names if name.isdecimal()), default=-self.every)

    def due(self, steps: int) -> bool:
        """Return whether a film is due at this env step."""
        return bool(self.every) and steps - self.filmed >= self.every

    def record(
        self,
        learner: AnyLearner,
        seed: int,
        clock: Clock,
        wrappers: State,
    ) -> dict[str, object] | None:
        """Make a film and return its journal record; if it fails, return None and make no more films."""
        path = self.run / VIDEOS / f"step-{clock.steps:012d}{usual_suffix()}"
        try:
            return self._record(learner, path, seed, clock, wrappers)
        except Exception as error:  # noqa: BLE001 - a renderer may raise anything, and a run is worth more than its films
            warn(f"no films of this run: {plain(str(error), 300) or type(error).__name__}")
            self.every = 0
            return None

    def _record(
        self,
        learner: AnyLearner,
        path: Path,
        seed: int,
        clock: Clock,
        wrappers: State,
    ) -> dict[str, object]:
        began = time.monotonic()
        env = make_shown_env(self.plan, "rgb_array")
        try:
            freeze(env, wrappers)
            with suppress(UsageError):  # not every environment can be cut
                complete(env).limit(LONGEST)
            fps = complete(env).fps
            with (
                hold_directory(path.parent) as folder,
                Films(film(folder / path.name, fps)) as films,
            ):
                result = play(
                    learner.agent(), env, episodes=1, seed=seed, clock=clock, reel=Reel(films)
                )
        finally:
            env.close()
        self.filmed = clock.steps
        return {
            "path": f"{VIDEOS}/{path.name}",
            "return": result.mean,
            "length": max(result.lengths),
            "seconds": time.monotonic() - began,
        }
