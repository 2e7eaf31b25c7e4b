"""The page that `rlplug ui` links to: it opens an experiment's runs with columns for reinforcement learning.

MLflow stores the shown columns in the browser, and otherwise opens its view for chats. The page changes no setting that
the user already has. Another version of MLflow may use other names, and then shows its own view.
"""

from __future__ import annotations

import json
import re
from urllib.parse import urlencode

PATH = "/rlplug/runs/"
_PAGE = re.compile(rf"{PATH}(\d{{1,30}})")
#: The order of the runs and the filters, in the browser's storage and in the address.
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
#: The other settings of an experiment's page, with MLflow's defaults.
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
#: Settings for all experiments: the side of MLflow for training, without the panel of the assistant.
EVERYWHERE = {
    "mlflow.workflowType_v1": '"machine_learning"',
    "mlflow.assistant.panelOpen_v1": "false",
    "mlflow.assistant.fab.autoOpenedOnFirstLoad_v1": "true",
}


def experiment_id(path: str) -> str:
    """Return the experiment id in a path of this page, or "" for another path."""
    match = _PAGE.fullmatch(path)
    return match[1] if match else ""


def page(experiment: str) -> bytes:
    """Return the page that stores missing settings, then opens the experiment's runs."""
    key = f'MLflowLocalStorage-1.1-ExperimentPage-["{experiment}"]-ReactComponentState'
    stored = {**EVERYWHERE, key: json.dumps({**VIEW, **SORTED, "selectedColumns": COLUMNS})}
    query = urlencode(
        {name: str(value).lower() if value is False else value for name, value in SORTED.items()}
    )
    script = (
        f"for (const [key, value] of Object.entries({json.dumps(stored)}))"
        " if (localStorage.getItem(key) === null) localStorage.setItem(key, value);"
        f" location.replace({json.dumps(f'/#/experiments/{experiment}/runs?{query}')});"
    )
    return f"<!doctype html><title>MLflow</title><script>{script}</script>".encode()
