"""Import MLflow as `mlflow-skinny` is imported: without what it has for tables of data.

A process that only sends needs neither pandas nor pyarrow, which take 74 MiB and more than a second of a core
(`docs/decisions/0056-what-a-run-takes-in-memory.md`).
"""

from __future__ import annotations

import sys
from importlib.metadata import distributions

from rlplug_cli.mlflow import store

TABLES = ("pandas", "pyarrow")
#: Distributions whose entry points for MLflow do without.
OURS = ("mlflow", "mlflow-skinny", "rlplug-cli")


def import_mlflow() -> None:
    """Import MLflow without the tables, unless a plugin of MLflow's may want them; whoever asks later has them."""
    store.settle()
    absent = [] if plugged() else [name for name in TABLES if name not in sys.modules]
    for name in absent:
        sys.modules[name] = None  # type: ignore[assignment]  # as Python says that a module is not there
    try:
        import mlflow  # noqa: F401
    finally:
        for name in absent:
            del sys.modules[name]


def plugged() -> bool:
    """Return whether some other distribution gives MLflow a store or a provider, which it loads when it is imported."""
    return any(
        point.group.startswith("mlflow.")
        for found in distributions()
        if found.name not in OURS
        for point in found.entry_points
    )
