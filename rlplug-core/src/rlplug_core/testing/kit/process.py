"""Goes on with a checkpoint in a fresh process: `python -m rlplug_core.testing.kit.process ORDER`, with JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from rlplug_core.runs.checkpoint import read
from rlplug_core.testing.kit.examination import Examination
from rlplug_core.testing.kit.trees import Leaves, digest
from rlplug_core.testing.kit.trial import Trial


def summary(behavior: Leaves) -> dict[str, str]:
    """A hash for each kind of behavior."""
    kinds = sorted({path.partition("/")[0] for path in behavior})
    return {kind: digest({path: leaf for path, leaf in behavior.items() if path.startswith(kind)}) for kind in kinds}


def main(order: dict[str, Any]) -> None:
    """Resume `checkpoint`, made after `from` vector steps, run on to `to` and write the summary into `report`."""
    subject = Examination(order["name"], order["options"], order["env"], {}).algorithm
    with subject.apart():
        components, _ = read(Path(order["checkpoint"]))
        trial = Trial(subject, subject.home_env(), seed=1).resume(components, order["from"]).run(order["to"])
        found = summary(trial.behavior())
    Path(order["report"]).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
