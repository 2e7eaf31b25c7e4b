"""The sender imports neither torch nor, unless a plugin of MLflow's may want them, tables of data; a run no pandas."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from rlplug_core.runs.journal import Journal

IMPORTED = """
import sys
import rlplug_cli.mlflow.sender
from rlplug_cli.mlflow.import_hook import has_plugins, import_mlflow
import_mlflow()
print(has_plugins(), "torch" in sys.modules, "pandas" in sys.modules, "pyarrow" in sys.modules)
import mlflow, pandas, pyarrow.parquet
"""
WRITTEN = """
import sys
from pathlib import Path
from rlplug_cli.mlflow.episodes import write
print(write(Path(sys.argv[1])).name, "pyarrow" in sys.modules, "pandas" in sys.modules)
"""
PLUGIN = "import pandas\nprint('plugin has', pandas.DataFrame.__name__)\nclass Store: pass\n"
POINT = "[mlflow.tracking_store]\nelsewhere = elsewhere_store:Store\n"


def imported(path: Path, code: str = IMPORTED) -> list[str]:
    """Return what a fresh process prints, with the packages in `path` installed next to the others."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(path), os.environ.get("PYTHONPATH", "")])}
    words = [sys.executable, "-c", code, str(path)]
    return subprocess.run(words, env=environ, capture_output=True, text=True, check=True).stdout.splitlines()


def test_tables_are_left_out_and_there_for_who_asks_later(tmp_path: Path) -> None:
    assert imported(tmp_path) == ["False False False False"]


def test_a_run_writes_its_table_of_episodes_without_pandas(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.write("episodes", 3, {"steps": [3], "returns": [1.0], "lengths": [3], "workers": [0]})
    journal.close()
    assert imported(tmp_path, WRITTEN) == ["episodes.parquet True False"]


def test_a_plugin_of_mlflow_finds_the_tables_that_it_imports(tmp_path: Path) -> None:
    (tmp_path / "elsewhere_store.py").write_text(PLUGIN)
    meta = tmp_path / "elsewhere-1.0.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (meta / "entry_points.txt").write_text(POINT)
    assert imported(tmp_path) == ["plugin has DataFrame", "True False True True"]
