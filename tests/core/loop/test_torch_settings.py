"""Settings of torch in a process that trains."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest
import torch

from rlplug_core.config.run_options import RunOptions
from rlplug_core.errors import UsageError
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.torch_settings import on_this_machine, usable_device, without_auto
from rlplug_core.processor import cores
from tests.core.fakes import ENVS, TINY

#: Tensors of an update of convolutions, freed after it: 96 MiB, more than glibc keeps by default.
UPDATES = """
import resource
import torch
from rlplug_core.loop.torch_settings import set_torch

def update():
    tensors = [torch.ones(2**20) for _ in range(24)]

def pages():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

set_torch(1)
for _ in range(5):
    update()
new = []
for _ in range(10):
    first = pages()
    update()
    new.append(pages() - first)
print(min(new))  # the system may take pages back at any time, but not at every update
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no mallopt")
def test_update_reuses_memory_of_the_last_one() -> None:
    """By default the C library returns it to the system, and each update waits for thousands of zeroed pages."""
    script = [sys.executable, "-c", UPDATES]
    pages = subprocess.run(script, check=True, capture_output=True, text=True).stdout
    assert int(pages) < 10


@pytest.fixture
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make torch report one GPU, which the test does not use."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)


@pytest.mark.parametrize(
    ("gpu", "runner", "device"), [(True, "sync", "cuda"), (True, "async", "cpu"), (False, "sync", "cpu")]
)
def test_auto_is_replaced_by_its_value(monkeypatch: pytest.MonkeyPatch, gpu: bool, runner: str, device: str) -> None:
    """A GPU if torch finds one and the runner can use it; one worker for each core."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    options = without_auto(RunOptions(workers=0), runner)
    assert (options.device, options.workers) == (device, cores())
    assert without_auto(RunOptions(device="cuda:1", workers=3), "sync") == RunOptions(device="cuda:1", workers=3)


def test_plan_replaces_auto() -> None:
    options = {"device": "auto", "workers": "auto", "runner": "sync", "keep_checkpoints": "all"}
    plan = Plan.make(TINY, f"{ENVS}:Chain", options)
    assert plan.flat["device"] == ("cuda" if torch.cuda.is_available() else "cpu")
    assert plan.flat["workers"] == cores()
    assert plan.flat["keep_checkpoints"] == 0


@pytest.mark.usefixtures("one_gpu")
def test_missing_gpu_raises() -> None:
    assert usable_device("cuda:0", "--device") == torch.device("cuda:0")
    with pytest.raises(
        UsageError, match=r"no device 'cuda:3': torch finds 1 here, counted from 0; use --device cuda:0"
    ):
        usable_device("cuda:3", "--device")


@pytest.mark.usefixtures("one_gpu")
def test_missing_gpus_become_the_first_one() -> None:
    messages: list[str] = []
    options = {"device": "cuda:3", "buffer_storage": "cuda:2", "actor_device": "cuda:0", "cudagraphs": True, "seed": 1}
    changed = on_this_machine(options, messages.append)
    assert changed == options | {"device": "cuda:0", "buffer_storage": "cuda:0"}
    assert messages == [
        "the run has device cuda:3 and buffer_storage cuda:2, and torch finds fewer GPUs here: cuda:0 computes instead"
    ]
    unchanged = {"device": "cuda", "seed": 1}
    assert on_this_machine(unchanged, messages.append) == unchanged
    assert len(messages) == 1
