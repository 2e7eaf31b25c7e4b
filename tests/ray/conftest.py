"""Clusters for tests: on the loopback interface, with their own token."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator

import pytest

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_AUTH_MODE"] = "token"
os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)

#: The settings that docs/scale.md recommends for the head of a cluster.
HEALTH_CHECKS = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 500, "health_check_timeout_ms": 500,
               "health_check_failure_threshold": 4}  # fmt: skip


@pytest.fixture
def three_nodes() -> Iterator[object]:
    """A head without CPUs, and three nodes with one CPU each."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "include_dashboard": False, "_system_config": HEALTH_CHECKS},
    )
    try:
        for _ in range(3):
            cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20, include_dashboard=False)
        yield cluster
    finally:
        cluster.shutdown()
