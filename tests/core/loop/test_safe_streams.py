"""Writing to a stream without a reader fails no run, in any of its processes."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rlplug_core.errors import RlplugError
from rlplug_core.loop.safe_streams import SafeStream, guard, safe_stream, safe_streams
from rlplug_core.loop.shared_memory import reserve_file, share_tensor
from tests.cli.warm import Fork
from tests.waiting import PATIENCE

#: A script that trains an environment which prints at every step to a pipe without a reader.
SCRIPT = """
import sys
sys.path.append({root!r})
import rlplug_core
from rlplug_core.testing.envs import Chain

class Loud(Chain):
    def step(self, action):
        print("a step", flush=True)
        return super().step(action)

if __name__ == "__main__":
    options = {{"total_timesteps": 64, "eval_episodes": 1, "final_eval_episodes": 1, "env_workers": {env_workers}}}
    options["num_envs"] = 2
    rlplug_core.train("tests.core.tiny_q:TinyQ", "./loud.py:Loud", options, name="loud", hooks=False)
"""


def test_stream_writes_until_its_reader_closes() -> None:
    reader, writer = os.pipe()
    before = os.fdopen(writer, "w", encoding="utf-8")
    before.write("one ")
    stream = safe_stream(before)
    print("two", file=stream, flush=True)
    assert os.read(reader, 100) == b"one two\n"  # in order
    os.close(reader)
    for _ in range(3):
        print("three" * 10_000, file=stream, flush=True)
    assert isinstance(stream.buffer.raw, SafeStream)  # type: ignore[attr-defined]
    assert stream.buffer.raw.lost  # type: ignore[attr-defined]
    with pytest.raises(BrokenPipeError):
        print("three", file=before, flush=True)
    with pytest.raises(BrokenPipeError):
        before.close()


def test_unbuffered_stream_stays_unbuffered() -> None:
    reader, writer = os.pipe()
    with io.TextIOWrapper(io.FileIO(writer, "w"), write_through=True) as before:  # type: ignore[type-var]
        stream = safe_stream(before)
        stream.write("at once")
        assert os.read(reader, 100) == b"at once"
        os.close(reader)
        stream.write("unread")


def test_other_streams_stay_unchanged() -> None:
    for stream in (io.StringIO(), io.TextIOWrapper(io.BytesIO()), sys.stdout):  # pytest's own is a subclass
        assert safe_stream(stream) is stream


@pytest.mark.parametrize("error", [OSError("gone"), ValueError("closed"), AttributeError("flush"), RuntimeError()])
@pytest.mark.parametrize("method", ["write", "flush"])
def test_failing_custom_stream_is_reported_once(
    method: str, error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A finished run was lost because a service's stdout raised."""

    def fail(self: object, *text: str) -> None:
        raise error

    custom: Any = type("Own", (io.StringIO,), {method: fail})()
    monkeypatch.setattr(sys, "stdout", custom)
    with safe_streams():
        print("trained", flush=True)  # noqa: T201
        with safe_streams():  # a run in a program that is safe already
            print("unread", flush=True)  # noqa: T201
        assert not sys.stdout.isatty()  # attributes of the custom stream stay
    assert custom.getvalue() == ("trained\n" if method == "flush" else "")
    assert re.fullmatch(
        rf"rlplug: this program's own stdout raised {type(error).__name__}.*\n", capsys.readouterr().err
    )


def test_closed_custom_stream_is_not_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """When the process ends, a handler of `logging` flushes the stream that it got during a run."""
    custom = io.StringIO()
    stream = guard(custom, "stderr")
    custom.close()
    stream.write("late")
    assert capsys.readouterr().err == ""


def test_no_stream_is_wrapped_twice() -> None:
    with open(os.devnull, "w", encoding="utf-8") as file:
        stream = safe_stream(file)
        assert stream is not file
        assert safe_stream(stream) is stream


@pytest.mark.parametrize("env_workers", [1, 2])
def test_printing_without_reader_does_not_end_the_run(
    fork: Callable[..., Fork], tmp_path: Path, env_workers: int
) -> None:
    (tmp_path / "loud.py").write_text(SCRIPT.format(env_workers=env_workers, root=str(Path.cwd())), encoding="utf-8")
    reader, writer = os.pipe()
    os.close(reader)
    process = fork("--script", "loud.py", stdout=writer, stderr=subprocess.PIPE, cwd=tmp_path)
    os.close(writer)
    _, error = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, error
    end = json.loads((tmp_path / "runs" / "loud" / "journal.jsonl").read_text().splitlines()[-1])
    assert end["data"]["status"] == "finished"


def test_user_code_cannot_close_a_stream() -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w", encoding="utf-8") as before:
        stream = safe_stream(before)
        stream.close()
        print("after", file=stream, flush=True)
    assert os.read(reader, 100) == b"after\n"
    os.close(reader)


def test_too_little_shared_memory_names_the_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "block").open("wb") as file, pytest.raises(RlplugError, match="--shm-size"):
        reserve_file(file.fileno(), 1 << 60)

    def fail(tensor: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("unable to write to file </torch_1_2_0>: No space left on device (28)")

    monkeypatch.setattr(torch.Tensor, "share_memory_", fail)
    with pytest.raises(RlplugError, match="--shm-size"):
        share_tensor(torch.zeros(1))
