"""A Ray cluster as a place for the tasks of a sweep; all its machines share the sweep's directory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rlplug_cli.sweep.task import on_node, stop_mark
from rlplug_core.loop.actor_placement import before_import

#: Environment variables that go with every task, besides those of rlplug's own.
SETTINGS = ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME")


class OnRay:
    """Each task is a call of a function that a node imports; one whose node is lost goes on elsewhere."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()

    def start(self, words: Sequence[str], log: Path, cores: int) -> RayJob:
        return RayJob(self.directory, log.stem, cores)


class RayJob:
    """A task somewhere in the cluster."""

    def __init__(self, directory: Path, name: str, cores: int) -> None:
        from rlplug_core.loop.ray_task import RayTask

        self.mark = stop_mark(directory, name)
        self.mark.unlink(missing_ok=True)
        settings = {k: v for k, v in os.environ.items() if k in SETTINGS or k.startswith("RLPLUG_")}
        about = (str(directory), name, os.getcwd(), settings)
        self.task = RayTask(on_node, cores, *about)

    def code(self) -> int | None:
        code = self.task.code()
        if code is not None:
            self.mark.unlink(missing_ok=True)
        return code

    def stop(self) -> None:
        self.mark.parent.mkdir(exist_ok=True)
        self.mark.touch()

    def kill(self) -> None:
        self.task.kill()


@contextmanager
def on_ray(on: str, packages: Sequence[str], directory: Path) -> Iterator[tuple[OnRay, int]]:
    """Be part of a Ray cluster; gives the place for the tasks of a directory, and how many CPUs it has.

    Raises:
        MissingPackage: a node lacks one of the distributions `packages`, or Ray is not installed here.
        UsageError, RlplugError: `on` is no address, or there is no cluster.
    """
    from importlib.metadata import version

    before_import(on)
    from rlplug_core.loop.ray_cluster import check_nodes, join, leave
    from rlplug_core.loop.ray_task import room

    join(on, 1)
    try:
        check_nodes({name: version(name) for name in packages})
        yield OnRay(directory), room()
    finally:
        leave()
