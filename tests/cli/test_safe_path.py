"""No file of the working directory runs because it is named like a module that rlplug imports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

#: What the parent, its workers and the sender import first, from the standard library and from others.
PLANTED = (
    "torch", "numpy", "gymnasium", "dataclasses", "typing", "json", "logging", "pluggy", "click", "msgspec", "mlflow",
    "sqlalchemy", "safetensors", "random", "signal", "multiprocessing", "psutil",
)  # fmt: skip


def test_a_run_with_workers_and_mlflow_imports_nothing_of_the_working_directory(place: Path) -> None:
    for name in PLANTED:
        (place / f"{name}.py").write_text(
            f"from pathlib import Path\nPath(__file__).with_name('ran-{name}').touch()\nraise ImportError('planted')\n"
        )
    script = Path(sys.executable).with_name("rlplug")
    words = [
        "run",
        "a3c",
        "CartPole-v1",
        "--total-timesteps",
        "400",
        "--eval-episodes",
        "1",
        "--final-eval-episodes",
        "1",
    ]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    done = subprocess.run([script, *words], cwd=place, env=environment, capture_output=True, text=True, check=False)
    assert [path.name for path in place.glob("ran-*")] == []
    assert done.returncode == 0, done.stderr
