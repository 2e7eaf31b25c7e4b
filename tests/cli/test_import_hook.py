"""The sender imports neither torch nor, unless a plugin of MLflow's may want them, tables of data."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

IMPORTED = """
import sys
import rlplug_cli.mlflow.sender
from rlplug_cli.mlflow.import_hook import has_plugins, import_mlflow
import_mlflow()
print(has_plugins(), "torch" in sys.modules, "pandas" in sys.modules, "pyarrow" in sys.modules)
import mlflow, pandas, pyarrow.parquet
"""
PLUGIN = "import pandas\nprint('plugin has', pandas.DataFrame.__name__)\nclass Store: pass\n"
POINT = "[mlflow.tracking_store]\nelsewhere = elsewhere_store:Store\n"


def imported(path: Path) -> list[str]:
    """What a fresh process says, with the packages in `path` installed beside the others."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(path), os.environ.get("PYTHONPATH", "")])}
    said = subprocess.run([sys.executable, "-c", IMPORTED], env=environ, capture_output=True, text=True, check=True)
    return said.stdout.splitlines()


def test_tables_are_left_out_and_there_for_who_asks_later(tmp_path: Path) -> None:
    assert imported(tmp_path) == ["False False False False"]


def test_a_plugin_of_mlflow_finds_the_tables_that_it_imports(tmp_path: Path) -> None:
    (tmp_path / "elsewhere_store.py").write_text(PLUGIN)
    meta = tmp_path / "elsewhere-1.0.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (meta / "entry_points.txt").write_text(POINT)
    assert imported(tmp_path) == ["plugin has DataFrame", "True False True True"]
