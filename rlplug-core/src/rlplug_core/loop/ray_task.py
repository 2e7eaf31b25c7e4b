"""A call of a function somewhere in a Ray cluster, which is made again elsewhere when its node is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

#: The exit code of what was lost with its worker, as a shell has it for SIGKILL.
LOST = 137


class RayTask:
    """Calls `function`, which every node imports by its name, with `cpus` kept for it; it returns an exit code."""

    def __init__(self, function: Callable[..., int], cpus: float, *arguments: Any) -> None:
        self.answer = ray.remote(num_cpus=cpus, max_retries=-1, scheduling_strategy="SPREAD")(
            function
        ).remote(*arguments)

    def code(self) -> int | None:
        """The exit code, or None while it runs or waits for a place.

        Raises:
            RayTaskError: the function raised.
        """
        here, _ = ray.wait([self.answer], timeout=0)
        if not here:
            return None
        try:
            return int(ray.get(self.answer))
        except RayTaskError:
            raise
        except RayError:
            return LOST

    def kill(self) -> None:
        ray.cancel(self.answer, force=True)


def room() -> int:
    """Return how many CPUs the cluster has."""
    return int(ray.cluster_resources().get("CPU", 0))
