"""Imports MLflow like `mlflow-skinny`: without its packages for tables of data.

A process that only sends needs neither pandas nor pyarrow, which take 74 MiB and more than a second of a core
(`docs/decisions/0056-memory-of-a-run.md`).
"""

from __future__ import annotations

import sys
from importlib.metadata import distributions

from rlplug_cli.mlflow import store

TABLES = ("pandas", "pyarrow")
#: Distributions with entry points for MLflow that do not need the tables.
OURS = ("mlflow", "mlflow-skinny", "rlplug-cli")


def import_mlflow() -> None:
    """Import MLflow without the tables, unless one of its plugins may need them; later imports of them work."""
    store.apply_settings()
    absent = [] if has_plugins() else [name for name in TABLES if name not in sys.modules]
    for name in absent:
        sys.modules[name] = None  # type: ignore[assignment]  # this is how Python marks a missing module
    try:
        import mlflow  # noqa: F401
    finally:
        for name in absent:
            del sys.modules[name]


def has_plugins() -> bool:
    """Return whether another distribution has an MLflow plugin, which MLflow loads when it is imported."""
    return any(
        point.group.startswith("mlflow.")
        for distribution in distributions()
        if distribution.name not in OURS
        for point in distribution.entry_points
    )
