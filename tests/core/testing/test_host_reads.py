"""HostReads counts each operation that waits for a device, and no other."""

import numpy as np
import torch

from rlplug_core.testing.host_reads import HostReads

TENSOR = torch.arange(3.0)


def test_counts_each_read() -> None:
    functions = {
        "item": lambda: TENSOR[0].item(),
        "bool": lambda: bool(TENSOR[0] > 0),
        "float": lambda: float(TENSOR[0]),
        "int": lambda: int(TENSOR[0]),
        "tolist": lambda: TENSOR.tolist(),
        "cpu": lambda: TENSOR.cpu(),
        "numpy": lambda: TENSOR.numpy(),
        "asarray": lambda: np.asarray(TENSOR),
        "nonzero": lambda: TENSOR.nonzero(),
        "mask": lambda: TENSOR[TENSOR > 1],
        "index": lambda: range(9)[torch.tensor(2)],
    }
    missing = []
    for name, function in functions.items():
        with HostReads() as reads:
            function()
        if not reads.counts:
            missing.append(name)
    assert missing == []


def test_does_not_count_work_on_the_device() -> None:
    with HostReads() as reads:
        total = torch.where(TENSOR > 1, TENSOR, 0).sum()
        store = torch.zeros(2, 3)
        store[1] = TENSOR + total
        store.index_select(0, torch.tensor([1]))
        store.masked_fill(store > 1, 0)
        assert len(store) == 2
    assert reads.counts == {}
