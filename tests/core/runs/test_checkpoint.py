"""Checkpoints return the saved state, survive kills and refuse damaged files."""

from __future__ import annotations

import hashlib
import json
import random
import re
import shutil
import tempfile
from collections.abc import Callable
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlplug_core.buffers.storage import Whole
from rlplug_core.errors import BadCheckpoint, BadFile
from rlplug_core.runs.checkpoint import FORMAT, Checkpoints, read, seal_manifest
from rlplug_core.runs.reproducibility import recorded_environment
from rlplug_core.runs.schemas import check_component
from tests.core.fakes import assert_same, save_and_load
from tests.core.writers import start_process, write_forever, write_once

#: Linux reports the memory of a process here.
STATUS = Path("/proc/self/status")
ABOUT = {"environment": {"versions": {"torch": "2"}}, "exact": True, "created": 1.5}


def state(size: int = 6) -> dict[str, Any]:
    return {"weights": torch.arange(size, dtype=torch.float32), "steps": 7, "name": "a", "position": np.arange(3)}


def save(directory: Path, *steps: int, kind: str = "step", keep: int = 3, **components: Any) -> Checkpoints:
    checkpoints = Checkpoints(directory, keep)
    for step in steps:
        checkpoints.save(kind, step, components or {"learner": state(step), "actor": {"env": state()}}, ABOUT)
    return checkpoints


# Round trips.

DTYPES = ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "uint64", "uint16", "bool")
ARRAYS = [np.ones((2, 0, 3)[:ndim], dtype) for dtype in DTYPES for ndim in range(4)]
TENSORS = [torch.from_numpy(array) for array in ARRAYS if array.dtype not in ("uint64", "uint16")]
PLAIN = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text())
LEAVES = st.one_of(PLAIN, st.sampled_from(ARRAYS), st.sampled_from(TENSORS))
ODD = ["a/b", "a", "b", "/", "", "$tensor", "$dict"]
KEYS = st.one_of(st.text(max_size=4), st.sampled_from(ODD), st.integers())
ANYTHING = st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.lists(inner, max_size=3).map(tuple), st.dictionaries(KEYS, inner, max_size=4)
    ),
    max_leaves=12,
)


def assert_equal(first: Any, second: Any) -> None:
    assert type(first) is type(second)
    if isinstance(first, dict):
        assert list(first) == list(second)
        assert [type(key) for key in first] == [type(key) for key in second]
        for key in first:
            assert_equal(first[key], second[key])
    elif isinstance(first, list | tuple):
        assert len(first) == len(second)
        for left, right in zip(first, second, strict=True):
            assert_equal(left, right)
    elif isinstance(first, np.ndarray | torch.Tensor):
        assert (first.dtype, first.shape) == (second.dtype, second.shape)
        np.testing.assert_array_equal(first, second)
    else:
        assert first == second


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(KEYS, TREES, max_size=4))
def test_round_trips_any_state(tree: dict[Any, Any]) -> None:
    assert_equal(tree, save_and_load(tree))


def test_round_trips_odd_leaves() -> None:
    generator = np.random.default_rng(3).bit_generator.state
    odd = {
        "generator": generator,
        "infinite": [float("inf"), float("-inf")],
        "strided": np.arange(12).reshape(3, 4)[:, ::2],
        "transposed": torch.arange(6.0).reshape(2, 3).T,
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "half": torch.ones(2, dtype=torch.bfloat16),
        "scalar": np.float32(0.1),
        "flag": np.bool_(True),
        "big_endian": np.arange(3, dtype=">f4"),
    }
    restored = save_and_load(odd)
    assert restored["generator"] == generator
    assert restored["infinite"] == odd["infinite"]
    np.testing.assert_array_equal(restored["strided"], odd["strided"])
    np.testing.assert_array_equal(restored["transposed"], odd["transposed"])
    assert restored["half"].dtype == torch.bfloat16
    assert restored["scalar"] == np.float32(0.1)
    assert restored["flag"] is True
    np.testing.assert_array_equal(restored["big_endian"], odd["big_endian"])
    assert np.isnan(save_and_load({"nan": float("nan")})["nan"])


def test_each_load_returns_writable_arrays_of_all_types(tmp_path: Path) -> None:
    tree = {"arrays": ARRAYS, "tensors": TENSORS}
    checkpoints = save(tmp_path, 1, everything=tree)
    for _ in range(2):
        restored = checkpoints.load(["step"])[1]["everything"]
        assert_equal(tree, restored)
        for array in restored["arrays"]:
            assert array.flags.aligned
            array.fill(0)
        for tensor in restored["tensors"]:
            tensor.zero_()


@pytest.mark.skipif(not STATUS.exists(), reason="the system does not report the memory of a process")
def test_loads_large_replay_without_a_second_copy(tmp_path: Path) -> None:
    size = 2**27
    save(tmp_path, 1, buffer=Whole(np.ones((size // 64, 1, 64), np.uint8)).state_dict(size // 64))
    before = private_memory()
    state = Checkpoints(tmp_path).load(["step"])[1]["buffer"]
    assert private_memory() - before < size // 4
    loaded = Whole.load(state, size // 64, "memory")
    assert private_memory() - before < 1.25 * size
    assert loaded.take(np.array([size // 64 - 1]))[0].tolist() == [1] * 64


def private_memory() -> int:
    """Return the bytes of this process's private memory, without mapped files."""
    (kilobytes,) = re.findall(r"^RssAnon:\s+(\d+) kB$", STATUS.read_text(), re.M)
    return 1024 * int(kilobytes)


@pytest.mark.parametrize("leaf", [object(), {1, 2}, b"bytes", np.array([object()]), np.array(["text"]), {1.5: 1}])
def test_invalid_state_raises_with_its_path(tmp_path: Path, leaf: Any) -> None:
    with pytest.raises(TypeError, match="/inner/here"):
        save(tmp_path, 1, learner={"inner": {"here": leaf}})
    save(tmp_path, 1)  # the failed save left no files


# Listing, keeping, choosing.


def test_keeps_last_best_and_final_checkpoints(tmp_path: Path) -> None:
    save(tmp_path, 1, 2, 3, 4, 5)
    save(tmp_path, 2, 4, kind="best")
    checkpoints = save(tmp_path, 5, kind="final")
    names = sorted(path.name.replace("0" * 11, "") for path in tmp_path.iterdir())
    assert names == ["best-4", "final-5", "step-3", "step-4", "step-5"]
    assert [(saved.kind, saved.step) for saved in checkpoints.kept("final", "step")][:2] == [("final", 5), ("step", 5)]
    assert [saved.step for saved in checkpoints.kept("best")] == [4]


def test_new_checkpoint_replaces_those_of_later_steps(tmp_path: Path) -> None:
    """A run that resumed from an earlier step continues differently; later checkpoints are of the old continuation."""
    save(tmp_path, 3, 7, kind="best")
    assert [saved.step for saved in save(tmp_path, 5, kind="best").kept("best")] == [5]
    save(tmp_path, 1, 2, 3, 9, keep=2)
    assert [saved.step for saved in save(tmp_path, 4, keep=2).kept("step")] == [4, 3]
    assert [saved.step for saved in save(tmp_path, 5, 6, 7, keep=0).kept("step")] == [7, 6, 5, 4, 3]  # all


def test_saving_same_step_replaces(tmp_path: Path) -> None:
    save(tmp_path, 1, learner={"x": 1})
    checkpoints = save(tmp_path, 1, learner={"x": 2})
    assert checkpoints.load(["step"])[1] == {"learner": {"x": 2}}
    assert len(list(tmp_path.iterdir())) == 1


def test_reads_one_component(tmp_path: Path) -> None:
    checkpoints = save(tmp_path, 4)
    saved, components, manifest, warnings = checkpoints.load(["step"], "learner")
    assert (saved.kind, saved.step, warnings) == ("step", 4, [])
    assert list(components) == ["learner"]
    assert manifest["environment"] == ABOUT["environment"]
    assert manifest["components"] == ["actor", "learner"]


def test_missing_checkpoints_raise(tmp_path: Path) -> None:
    with pytest.raises(BadCheckpoint, match=r"no readable final or step checkpoint; bring back its files .* or train"):
        Checkpoints(tmp_path / "absent").load(["final", "step"])


# Damage.


def list_files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def test_detects_changed_bytes(tmp_path: Path) -> None:
    """In each file and the manifest: flipped bits, cut ends, zeroed ends and added bytes."""
    (saved,) = save(tmp_path, 3).kept()
    draws = random.Random(0)
    for path in list_files(saved.path):
        content = path.read_bytes()
        damaged = [flip(content, draws.randrange(8 * len(content))) for _ in range(200)]
        damaged += [content[: draws.randrange(len(content))] for _ in range(20)]
        damaged += [content[:-n] + bytes(n) for n in (1, 8, 50)]
        damaged += [content + more for more in (b"\0", b" ", b"\n")] + [b""]
        for changed in (changed for changed in damaged if changed != content):
            path.write_bytes(changed)
            with pytest.raises(BadCheckpoint, match="damaged"):
                read(saved.path)
        path.write_bytes(content)
    read(saved.path)


def flip(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_detects_missing_and_swapped_files(tmp_path: Path) -> None:
    save(tmp_path / "a", 3)
    save(tmp_path / "b", 4)
    (saved,) = Checkpoints(tmp_path / "a").kept()
    (second,) = Checkpoints(tmp_path / "b").kept()
    for path in list_files(saved.path):
        content = path.read_bytes()
        path.unlink()
        with pytest.raises(BadCheckpoint, match="damaged"):
            read(saved.path)
        for source in [*list_files(saved.path), second.path / path.name]:
            if source.read_bytes() != content:
                path.write_bytes(source.read_bytes())
                with pytest.raises(BadCheckpoint, match="damaged"):
                    read(saved.path)
        path.write_bytes(content)
    read(saved.path)


def test_detects_renamed_checkpoint(tmp_path: Path) -> None:
    (saved,) = save(tmp_path, 3).kept()
    saved.path.rename(tmp_path / "step-000000000009")
    with pytest.raises(BadCheckpoint, match="damaged"):
        Checkpoints(tmp_path).load(["step"])


@pytest.mark.parametrize("version", [1, FORMAT + 1])
def test_other_format_names_the_version_to_install(tmp_path: Path, version: int) -> None:
    about = {"environment": {"versions": {"rlplug-core": "0.0.7"}}}
    path = Checkpoints(tmp_path).save("step", 3, {"events": {}}, {**about, "format": version}).path
    message = (
        f"checkpoint step-000000000003 has format {version}, which rlplug-core 0.0.7 wrote, and this version reads "
        f"format {FORMAT}; install that version to use it"
    )
    for attempt in (lambda: read(path), lambda: Checkpoints(tmp_path).load(["step"])):
        with pytest.raises(BadCheckpoint, match=re.escape(message)) as caught:
            attempt()
        assert "from a copy" not in str(caught.value)


def test_loads_previous_checkpoint_and_warns(tmp_path: Path) -> None:
    checkpoints = save(tmp_path, 1, 2, 3)
    newest, middle, _ = checkpoints.kept()
    (newest.path / "learner.safetensors").write_bytes(b"")
    shutil.rmtree(middle.path)
    middle.path.mkdir()
    saved, components, _, warnings = checkpoints.load(["final", "step"])
    assert saved.step == 1
    assert_same(components["learner"], state(1))
    assert len(warnings) == 2
    assert "step-000000000003 is damaged: learner.safetensors has changed" in warnings[0]
    (saved.path / "manifest.json").write_text("[]")
    with pytest.raises(BadCheckpoint, match=r"no readable final or step checkpoint: .*000003.*000002.*000001"):
        checkpoints.load(["final", "step"])


@settings(max_examples=100, deadline=None)
@given(ANYTHING)
def test_any_wrong_manifest_raises_bad_checkpoint(content: Any) -> None:
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "manifest.json").write_text(json.dumps(content))
        with pytest.raises(BadCheckpoint):
            read(Path(directory))


# Hostile checkpoints: well-formed, with valid hashes.


def forge_manifest(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Rewrite a manifest with a valid hash, as an attacker can."""
    manifest = json.loads((path / "manifest.json").read_bytes())
    del manifest["sha256"]
    change(manifest)
    (path / "manifest.json").write_bytes(seal_manifest(manifest))


@pytest.mark.parametrize("name", ["../secret", "..", "/etc/passwd", "sub/secret", "a\\b", "", "learner.json", "a\0b"])
def test_manifest_cannot_point_outside(tmp_path: Path, name: str) -> None:
    (saved,) = save(tmp_path / "run", 1).kept()
    (tmp_path / "run" / "secret.json").write_text('{"$dict": [["stolen", 1]]}')
    forge_manifest(saved.path, lambda manifest: manifest["components"].append(name))
    with pytest.raises(BadCheckpoint, match="cannot be a component's name"):
        read(saved.path)
    digest = hashlib.sha256((tmp_path / "run" / "secret.json").read_bytes()).hexdigest()
    files = {Path(f"{name}.json").name: digest}
    forge_manifest(saved.path, lambda manifest: manifest.update(components=[name], files=files))
    with pytest.raises(BadCheckpoint, match="cannot be a component's name"):
        read(saved.path)


def test_files_missing_in_manifest_are_not_read(tmp_path: Path) -> None:
    (saved,) = save(tmp_path, 1).kept()
    forge_manifest(saved.path, lambda manifest: manifest["files"].pop("learner.json"))
    with pytest.raises(BadCheckpoint, match=r"KeyError: 'learner\.json'"):
        read(saved.path)
    forge_manifest(saved.path, lambda manifest: manifest.update(files={}))
    with pytest.raises(BadCheckpoint, match="KeyError: "):
        read(saved.path)


def safetensors_file(header: bytes) -> bytes:
    """A safetensors file with this header and eight bytes of data."""
    return len(header).to_bytes(8, "little") + header + bytes(8)


def test_torch_error_of_unreadable_file_names_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by `tests.faults.files`: safetensors opens the file, then torch opens it again."""
    path = Checkpoints(tmp_path).save("step", 1, {"part": {"x": np.arange(3)}}, {}).path

    def fail(path: Path) -> None:
        raise RuntimeError(f"unable to open file <{path}> in read-only mode: Input/output error (5)")

    monkeypatch.setattr("rlplug_core.runs.component_files.load_file", fail)
    with pytest.raises(
        BadCheckpoint, match=r"cannot be read: .*Input/output error.*; check the disk for faults, then type"
    ):
        read(path)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("learner.json", b'{"$tensor": "absent"}'),
        ("learner.json", b'{"$pickle": "x"}'),
        ("learner.json", b'{"$dict": [[["list"], 1]]}'),
        ("learner.json", b'{"$dict": 1}'),
        ("learner.json", b"[" * 100_000 + b"]" * 100_000),
        ("learner.json", b'"no dictionary"'),
        ("learner.safetensors", b"\xff" * 64),
        ("learner.safetensors", (10**9).to_bytes(8, "little") + b"{}"),
        ("learner.safetensors", safetensors_file(b"[1]")),
        ("learner.safetensors", safetensors_file(b'{"a": {"dtype": "X9", "shape": [1], "data_offsets": [0, 8]}}')),
        ("learner.safetensors", safetensors_file(b'{"a": {"dtype": "F99", "shape": [1], "data_offsets": [0, 8]}}')),
        ("learner.safetensors", safetensors_file(b'{"a": {"dtype": "F32", "shape": [9], "data_offsets": [0, 8]}}')),
        ("learner.safetensors", safetensors_file(b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": ["x"]}}')),
        ("learner.safetensors", b"\x80\x04\x95" + b"cos\nsystem\n"),
    ],
)
def test_hostile_content_is_reported_as_damage(tmp_path: Path, file: str, content: bytes) -> None:
    (saved,) = save(tmp_path, 1).kept()
    (saved.path / file).write_bytes(content)
    forge_manifest(saved.path, lambda manifest: manifest["files"].update({file: hashlib.sha256(content).hexdigest()}))
    with pytest.raises(BadCheckpoint, match="damaged"):
        read(saved.path)


def test_hostile_parts_with_valid_hashes_raise(tmp_path: Path) -> None:
    (saved,) = save(tmp_path, 1).kept()
    clock = {"total": 9, "limit": 9, "steps": 1, "updates": 0}
    for scale in (1e300, -1.0):  # a tensor of float32 takes no 1e300
        with pytest.raises(BadFile, match="scale"):
            check_component(saved.path, "clock", {**clock, "scale": scale})
    with pytest.raises(BadCheckpoint, match="has no environment"):
        recorded_environment("step-000000000001", {"environment": None})
    forge_manifest(saved.path, lambda manifest: manifest.update(environment={}))
    with pytest.raises(BadCheckpoint, match="versions"):
        read(saved.path)


def test_nothing_is_pickled(tmp_path: Path) -> None:
    for path in list_files(save(tmp_path, 1).kept()[0].path):
        assert path.suffix in (".json", ".safetensors")
        if path.suffix == ".json":
            json.loads(path.read_bytes())


# Kills.


def kill_writer(directory: Path, first_step: int, rounds: int, seconds: float) -> int:
    """Kill a writer shortly after it acknowledged some rounds; return the last acknowledged step."""
    receiver, sender = Pipe(duplex=False)
    writer = start_process(write_forever, str(directory), first_step, sender)
    sender.close()
    steps = [int(receiver.recv_bytes()) for _ in range(rounds)]
    writer.join(seconds)
    writer.kill()
    writer.join()
    while receiver.poll():
        try:
            steps.append(int(receiver.recv_bytes()))
        except EOFError:
            break
    return steps[-1] if steps else 0


def test_kill_at_any_moment_damages_no_checkpoint(tmp_path: Path) -> None:
    """Kill writers at random moments: every checkpoint that was reported as saved can be read."""
    directory = tmp_path / "checkpoints"
    draws = random.Random(1)
    acknowledged, best = 0, 0
    for _ in range(100):
        rounds = draws.choice([0, 0, 1])
        seconds = draws.uniform(0.0, 0.01)
        acknowledged = max(acknowledged, kill_writer(directory, acknowledged + 1, rounds, seconds))
        if acknowledged:
            acknowledged, best = check_after_kill(directory, acknowledged, best)
    assert acknowledged > 20
    save(directory, acknowledged + 1)
    save(directory, 1, kind="best")
    assert not [path for path in directory.iterdir() if path.name.startswith(".")]  # leftovers of kills are removed


def check_after_kill(directory: Path, acknowledged: int, best: int) -> tuple[int, int]:
    """Read the newest and the best checkpoint; return their steps."""
    checkpoints = Checkpoints(directory)
    saved, components, _, warnings = checkpoints.load(["step"])
    assert not warnings
    assert saved.step >= acknowledged
    assert components["learner"]["step"] == saved.step
    best_step: int = checkpoints.load(["best"])[1]["learner"]["step"]
    assert best_step >= best
    return saved.step, best_step


def test_kill_before_any_file_operation_damages_no_checkpoint(tmp_path: Path) -> None:
    operation = 0
    while True:
        directory = tmp_path / str(operation)
        save(directory, 1, kind="best", learner={"version": 1})
        save(directory, 1, learner={"version": 1})
        writer = start_process(write_once, str(directory), operation + 1)
        writer.join()
        for kind in ("best", "step"):
            saved, components, _, warnings = Checkpoints(directory).load([kind])
            assert not warnings, (operation, kind)
            assert components["learner"]["version"] in (saved.step, 2)
        if writer.exitcode == 0:
            break
        operation += 1
    assert operation > 15


def test_a_new_folder_of_checkpoints_is_synced_in_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a power failure could take the folder with all of its checkpoints."""
    synced: list[Path] = []
    monkeypatch.setattr("rlplug_core.runs.checkpoint.sync_directory", synced.append)
    Checkpoints(tmp_path / "new").save("step", 0, {"learner": {"weights": np.ones(3)}}, {})
    assert tmp_path in synced
