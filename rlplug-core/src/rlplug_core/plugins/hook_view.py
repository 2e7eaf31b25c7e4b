"""The view that hooks have of a run: they can read it and add to it, but cannot reach the parts that train."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlplug_core.config.files import hold_directory, replace
from rlplug_core.errors import UsageError
from rlplug_core.plugins.hook_specs import RunView

#: Writes a record of a kind into the journal, at the clock's env step.
Write = Callable[[str, Mapping[str, object]], object]
#: Groups of metrics that are the run's own.
RESERVED = ("rollout", "eval", "perf", "final_eval", "info")
_NAME = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)+")


@dataclass(frozen=True, slots=True)
class HookView:
    """A run's name, directory, journal and configuration, with methods that add to its record.

    `config` is read again at each access, so changes affect only a copy. Logged values go into the journal at the env
    step of the clock, and from there to MLflow and every other mirror.
    """

    name: str
    path: Path
    journal: Path
    _run: RunView = field(repr=False)
    _write: Write = field(repr=False)

    @property
    def config(self) -> dict[str, Any]:
        return self._run.config

    def log_metric(self, name: str, value: float) -> None:
        """Record a number under `group/name`.

        Raises:
            UsageError: the name has no group or a group of the run itself, or the value is not finite.
        """
        if not _NAME.fullmatch(name) or name.partition("/")[0] in RESERVED:
            raise UsageError(
                f"metric '{name}': write group/name, in another group than {', '.join(RESERVED)}"
            )
        if not math.isfinite(value):
            raise UsageError(f"metric '{name}' is {value}; only finite numbers are recorded")
        self._write("metrics", {name: float(value)})

    def log_image(self, name: str, file: Path | str) -> Path:
        """Keep a copy of an image file in the run's `images`, and record it."""
        return self._copy_file("image", "images", name, Path(file))

    def log_video(self, name: str, file: Path | str) -> Path:
        """Keep a copy of a film in the run's `videos`, and record it."""
        return self._copy_file("video", "videos", name, Path(file))

    def _copy_file(
        self,
        kind: str,
        folder: str,
        name: str,
        file: Path,
    ) -> Path:
        if not file.is_file():
            raise UsageError(f"{kind} '{name}': there is no file {file}")
        target = self.path / folder / f"{name.replace('/', '-')}{file.suffix}"
        with hold_directory(target.parent) as held, file.open("rb") as content:
            replace(held / target.name, content)
        self._write(kind, {"name": name, "path": f"{folder}/{target.name}"})
        return target
