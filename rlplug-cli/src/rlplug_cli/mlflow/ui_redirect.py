"""The page that `rlplug ui` links to: it opens an experiment's runs as reinforcement learning wants to see them.

MLflow keeps in the browser which columns it shows, and opens at its view for chats otherwise. What someone has chosen
there already is left alone. Another version of MLflow may call these things otherwise, and then shows its own view.
"""

from __future__ import annotations

import json
import re
from urllib.parse import urlencode

PATH = "/rlplug/runs/"
_PAGE = re.compile(rf"{PATH}(\d{{1,30}})")
#: How the runs are sorted.
SORTED = {
    "orderByKey": "metrics.`final_eval/return_mean`",
    "orderByAsc": False,
    "startTime": "ALL",
    "lifecycleFilter": "Active",
}
COLUMNS = (
    "metrics.`final_eval/last_return_mean`",
    "metrics.`final_eval/return_mean`",
    "metrics.`eval/return_mean`",
    "params.`algorithm`",
    "params.`seed`",
    "params.`total_timesteps`",
)
#: The rest of what MLflow keeps for the page of an experiment, as it is where nobody has chosen anything.
VIEW = {
    "searchFilter": "",
    "datasetsFilter": [],
    "modelVersionFilter": "All Runs",
    "columnOrder": [],
    "columnWidths": {},
    "runsExpanded": {},
    "runsPinned": [],
    "runsHidden": [],
    "runsVisibilityMap": {},
    "runsHiddenMode": "FIRST_20_RUNS",
    "viewMaximized": False,
    "runListHidden": False,
    "isAccordionReordered": False,
    "useGroupedValuesInCharts": True,
    "hideEmptyCharts": True,
    "groupBy": None,
    "groupsExpanded": {},
    "autoRefreshEnabled": True,
    "globalLineChartConfig": {
        "xAxisKey": "step",
        "lineSmoothness": 0,
        "selectedXAxisMetricKey": "",
    },
}
#: The browser's storage: the side of MLflow for training, without the assistant's panel.
EVERYWHERE = {
    "mlflow.workflowType_v1": '"machine_learning"',
    "mlflow.assistant.panelOpen_v1": "false",
    "mlflow.assistant.fab.autoOpenedOnFirstLoad_v1": "true",
}


def experiment(path: str) -> str:
    """Return the experiment whose runs a path stands for; empty where it is another path."""
    found = _PAGE.fullmatch(path)
    return found[1] if found else ""


def page(number: str) -> bytes:
    """The page that stores what is not yet chosen, and goes on to an experiment's runs."""
    key = f'MLflowLocalStorage-1.1-ExperimentPage-["{number}"]-ReactComponentState'
    stored = {**EVERYWHERE, key: json.dumps({**VIEW, **SORTED, "selectedColumns": COLUMNS})}
    query = urlencode(
        {name: str(value).lower() if value is False else value for name, value in SORTED.items()}
    )
    script = (
        f"for (const [key, value] of Object.entries({json.dumps(stored)}))"
        " if (localStorage.getItem(key) === null) localStorage.setItem(key, value);"
        f" location.replace({json.dumps(f'/#/experiments/{number}/runs?{query}')});"
    )
    return f"<!doctype html><title>MLflow</title><script>{script}</script>".encode()
