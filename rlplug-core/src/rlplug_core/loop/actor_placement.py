"""The machines of a run's actors: this one, or those of a Ray cluster."""

from __future__ import annotations

import os
from importlib.util import find_spec

from rlplug_core.errors import MissingPackage, UsageError

#: The values of `--on` without an address.
LOCAL = "local"
RAY = "ray"


def address_of(on: str) -> str:
    """Return the address in `ray://HOST:PORT`; "" for `ray`, a cluster on this machine that ends with the run.

    Raises:
        UsageError: `on` has another form.
    """
    scheme, slashes, address = on.partition("://")
    if scheme != RAY or bool(slashes) != bool(address):
        raise UsageError(
            f"--on {on}: write local, ray, or ray://HOST:PORT with the address of a cluster's head"
        )
    return address


def before_import(on: str) -> None:
    """Set the variables that Ray reads on import: its usage reports are off, and our own cluster uses only loopback.

    On systems other than Linux, loopback is Ray's default.

    Raises:
        MissingPackage: Ray is not installed.
    """
    if find_spec("ray") is None:
        raise MissingPackage("--on ray needs ray: python -m pip install 'rlplug-core[ray]'")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if not address_of(on):
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
