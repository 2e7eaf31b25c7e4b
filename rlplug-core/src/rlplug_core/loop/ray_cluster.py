"""Use a Ray cluster: join it, check its nodes and CPUs, reserve GPUs, and run a task in one of its processes."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from signal import SIGTERM
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError
from ray.job_config import JobConfig
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rlplug_core.config.import_string import is_target
from rlplug_core.errors import MissingPackage, RlplugError, Stopped, UsageError, plain
from rlplug_core.loop.actor_placement import address_of
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.process_spawner import safe_path
from rlplug_core.loop.ray_watch import RayWatch
from rlplug_core.loop.signals import STOPPING
from rlplug_core.plugins import find
from rlplug_core.plugins.envs import names_code, record_of
from rlplug_core.plugins.records import Record
from rlplug_core.plugins.single_wrappers import SHORT
from rlplug_core.plugins.spec import split

#: A directory without importable files, which only root can change. Ray puts the working directory first on the path of
#: all its workers, which would import a `torch.py` there.
NOWHERE = "/"
#: After how many checks without an answer, and how many ms apart, our own cluster considers a node dead.
HEALTH = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}
#: The watch of this process; empty while it is in no cluster.
_WATCHES: list[RayWatch] = []
#: Seconds that a node may take to report its installed packages.
NODE_TIMEOUT = 120.0


@contextlib.contextmanager
def _preserve_process() -> Iterator[None]:
    """Restore the signal handlers and the working directory, which Ray changes when a process joins a cluster."""
    before = {number: signal.getsignal(number) for number in STOPPING}
    directory = os.getcwd()
    os.chdir(NOWHERE)
    try:
        yield
    except SystemExit as error:  # Ray turns SIGTERM into this
        leave()
        raise Stopped("stopped by SIGTERM while it joined a Ray cluster", SIGTERM) from error
    finally:
        os.chdir(directory)
        with contextlib.suppress(ValueError):  # not the main thread: Ray has not changed them
            for number, handler in before.items():
                signal.signal(number, handler)


def join(on: str, cpus: float) -> None:
    """Join the cluster `on`, or start one with room for `cpus`: on the loopback interface, without a dashboard.

    Our own cluster requires a token, which Ray makes and keeps in ~/.ray/auth_token, unless RAY_AUTH_MODE
    says otherwise; so does another one if Ray finds its token there or in RAY_AUTH_TOKEN.

    Raises:
        UsageError: this process has already joined one. RlplugError: it cannot be joined.
    """
    address = address_of(on) or "local"
    if ray.is_initialized():
        raise UsageError(
            "this process has already joined a Ray cluster; leave it with ray.shutdown()"
        )
    arguments = _new_cluster(cpus) if address == "local" else {}
    try:
        with safe_path(), _preserve_process(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.init(
                address=address,
                job_config=JobConfig(code_search_path=[NOWHERE]),
                log_to_driver=False,
                logging_level=logging.CRITICAL,
                **arguments,
            )
    except Exception as error:  # Ray raises Exception itself if a node of its own starts too slowly
        leave()
        where = "could start here" if address == "local" else f"at {address}"
        raise RlplugError(f"no Ray cluster {where}: {plain(str(error))}") from error
    _WATCHES.append(RayWatch())


def _new_cluster(cpus: float) -> dict[str, Any]:
    """Return the arguments of `ray.init` for our own cluster with room for `cpus`."""
    return {
        "num_cpus": max(math.ceil(cpus), os.cpu_count() or 1),
        "include_dashboard": False,
        "_system_config": HEALTH,
    }


def leave() -> None:
    """Leave the cluster; our own cluster ends."""
    while _WATCHES:
        _WATCHES.pop().close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.shutdown()


def check_room(actors: int, cpus: float) -> None:
    """Refuse more actors than the cluster has cores for: they would wait forever.

    Raises:
        UsageError: there are too few.
    """
    available = ray.cluster_resources().get("CPU", 0.0)
    if actors * cpus > available:
        raise UsageError(
            f"{actors} actors with {cpus:g} CPUs each do not fit into the cluster's {available:g}; use fewer --actors, "
            "smaller --cpus-per-actor, or add nodes"
        )


def reserve(gpus: int) -> object:
    """Reserve GPUs of this machine for the learner, which runs in this process, until the result is deleted.

    Raises:
        UsageError: the cluster has none free here.
    """
    if not gpus:
        return None
    node = f"node:{ray.util.get_node_ip_address()}"
    group = ray.util.placement_group([{"GPU": gpus, node: 0.001}])
    if not group.wait(NODE_TIMEOUT / 10):
        ray.util.remove_placement_group(group)
        raise UsageError(
            f"--gpus {gpus}: the cluster has no {gpus} free on this machine, where the learner is"
        )
    return group


def packages_of_nodes(plan: Plan) -> dict[str, str]:
    """Return the distributions, with versions, that every node must have: core, and the plugins that the plan names."""
    records: list[Record | None] = []
    if not is_target(plan.algorithm):
        records.append(find("algorithms", plan.algorithm))
    if not names_code(plan.env):
        records.append(record_of(plan.env))
    wrappers = [split(wrapper.words)[0] for wrapper in plan.wrappings]
    records += [
        find("wrappers", name)
        for name in wrappers
        if not is_target(name) and not name.startswith(SHORT)
    ]
    names = {"rlplug-core", *(record.distribution for record in records if record is not None)}
    return {name: version(name) for name in sorted(names)}


def check_nodes(packages: Mapping[str, str]) -> None:
    """Compare the versions of `packages` on every node of the cluster.

    Raises:
        MissingPackage: a node lacks some, or has other versions; the message has the command for it.
    """
    for node in ray.nodes():
        if node["Alive"]:
            missing = {
                name: installed
                for name in packages
                if (installed := _version_on(node["NodeID"], name)) != packages[name]
            }
            if missing:
                requirements = " ".join(f"'{name}=={packages[name]}'" for name in missing)
                differences = ", ".join(
                    f"{name} {installed}" if installed else f"no {name}"
                    for name, installed in missing.items()
                )
                raise MissingPackage(
                    f"node {node['NodeManagerAddress']} has {differences}: python -m pip install {requirements}"
                )


def _version_on(node: str, package: str) -> str:
    """Return the version of a package on a node, "" if it is missing; every node has Python's own `version`."""
    ask = ray.remote(num_cpus=0, max_retries=0)(version)
    strategy = NodeAffinitySchedulingStrategy(node, soft=False)
    try:
        return str(
            ray.get(ask.options(scheduling_strategy=strategy).remote(package), timeout=NODE_TIMEOUT)
        )
    except RayTaskError as error:
        if isinstance(error.cause, PackageNotFoundError):
            return ""
        raise


#: The exit code of a task that was lost with its worker: a shell's code for SIGKILL.
LOST = 137


class RayTask:
    """Calls `function` on a node, which imports it by its name, and reserves `cpus` for it; it returns an exit code."""

    def __init__(
        self,
        function: Callable[..., int],
        cpus: float,
        *arguments: object,
    ) -> None:
        self.answer = ray.remote(num_cpus=cpus, max_retries=-1, scheduling_strategy="SPREAD")(
            function
        ).remote(*arguments)

    def code(self) -> int | None:
        """Return the exit code, or None while it runs or waits for a place.

        Raises:
            RayTaskError: the function raised.
        """
        finished, _ = ray.wait([self.answer], timeout=0)
        if not finished:
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
