"""Put the results of `rlplug check` that `nox -s compat` found into a registry.

python .ci/checked.py RESULTS REGISTRY      # a line of JSON for each result; a file that `rlplug index` wrote
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> None:
    """Replace the results with the same versions of plugin and rlplug-core, and keep all others."""
    results, registry = map(Path, sys.argv[1:])
    data = json.loads(registry.read_text(encoding="utf-8"))
    entries = {
        (plugin["group"], plugin["id"], plugin["distribution"]): plugin
        for plugin in data["plugins"]
    }
    for line in results.read_text(encoding="utf-8").splitlines():
        result = json.loads(line)
        entry = entries[result["group"], result["id"], result.pop("distribution")]
        version = (result["version"], result["core"])
        others = [
            check for check in entry["checks"] if (check["version"], check["core"]) != version
        ]
        entry["checks"] = [*others, result]
    text = json.dumps(data, indent=1, ensure_ascii=False)
    registry.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
