"""A Ray cluster as a place that runs the tasks of a sweep; all its machines share the sweep's directory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rlplug_cli.sweep.task import run_on_node, stop_mark
from rlplug_core.config import hold_directory, open_regular
from rlplug_core.loop import before_import

#: Environment variables that are sent with every task, besides rlplug's own.
SETTINGS = ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME")


class RayPlace:
    """Each task is a call of a function that a node imports; if a node is lost, another one continues its tasks."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()

    def start(self, words: Sequence[str], log: Path, cores: int) -> RayJob:
        return RayJob(self.directory, log.stem, words, cores)


class RayJob:
    """A task on some node of the cluster."""

    def __init__(
        self,
        directory: Path,
        name: str,
        words: Sequence[str],
        cores: int,
    ) -> None:
        from rlplug_core.loop import RayTask

        self.mark = stop_mark(directory, name)
        self.mark.unlink(missing_ok=True)
        settings = {
            variable: value
            for variable, value in os.environ.items()
            if variable in SETTINGS or variable.startswith("RLPLUG_")
        }
        arguments = (str(directory), name, list(words), os.getcwd(), settings)
        self.task = RayTask(run_on_node, cores, *arguments)

    def code(self) -> int | None:
        code = self.task.code()
        if code is not None:
            self.mark.unlink(missing_ok=True)
        return code

    def stop(self) -> None:
        with hold_directory(self.mark.parent) as logs:
            open_regular(logs / self.mark.name, "ab").close()

    def kill(self) -> None:
        self.task.kill()


@contextmanager
def on_ray(
    address: str,
    packages: Sequence[str],
    directory: Path,
) -> Iterator[tuple[RayPlace, int]]:
    """Join a Ray cluster; yield the place for the tasks of a directory, and the number of its CPUs.

    Raises:
        MissingPackage: a node lacks one of the distributions `packages`, or Ray is not installed here.
        UsageError, RlplugError: `address` is not an address, or it has no cluster.
    """
    from importlib.metadata import version

    before_import(address)
    from rlplug_core.loop import check_nodes, cluster_cpus, join_cluster, leave_cluster

    join_cluster(address, 1)
    try:
        check_nodes({name: version(name) for name in packages})
        yield RayPlace(directory), cluster_cpus()
    finally:
        leave_cluster()
