"""The sender imports no torch, and pandas and pyarrow only for plugins of MLflow; runs import no pandas."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from rlplug_core.runs.journal import Journal

IMPORT_MLFLOW = """
import sys
import rlplug_cli.mlflow.sender
from rlplug_cli.mlflow.skinny_import import has_plugins, import_mlflow
import_mlflow()
print(has_plugins(), "torch" in sys.modules, "pandas" in sys.modules, "pyarrow" in sys.modules)
import mlflow, pandas, pyarrow.parquet
"""
WRITE_EPISODES = """
import sys
from pathlib import Path
from rlplug_cli.mlflow.episodes import write
print(write(Path(sys.argv[1])).name, "pyarrow" in sys.modules, "pandas" in sys.modules)
"""
PLUGIN = "import pandas\nprint('plugin has', pandas.DataFrame.__name__)\nclass Store: pass\n"
POINT = "[mlflow.tracking_store]\nelsewhere = elsewhere_store:Store\n"


def output_of_process(path: Path, code: str = IMPORT_MLFLOW) -> list[str]:
    """Return the output of a new process in which the packages in `path` are installed."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(path), os.environ.get("PYTHONPATH", "")])}
    words = [sys.executable, "-c", code, str(path)]
    return subprocess.run(words, env=environ, capture_output=True, text=True, check=True).stdout.splitlines()


def test_mlflow_imports_no_tables(tmp_path: Path) -> None:
    assert output_of_process(tmp_path) == ["False False False False"]


def test_table_of_episodes_needs_no_pandas(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.write("episodes", 3, {"steps": [3], "returns": [1.0], "lengths": [3], "workers": [0]})
    journal.close()
    assert output_of_process(tmp_path, WRITE_EPISODES) == ["episodes.parquet True False"]


def test_plugin_of_mlflow_can_import_pandas(tmp_path: Path) -> None:
    (tmp_path / "elsewhere_store.py").write_text(PLUGIN)
    meta = tmp_path / "elsewhere-1.0.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (meta / "entry_points.txt").write_text(POINT)
    assert output_of_process(tmp_path) == ["plugin has DataFrame", "True False True True"]
