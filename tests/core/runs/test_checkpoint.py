"""Checkpoints: what goes in comes out, a kill loses nothing, and nothing damaged is ever taken for good."""

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
from tests.core.fakes import assert_same, stored
from tests.core.writers import started, write_for_ever, write_once

#: Where Linux says what memory a process has.
STATUS = Path("/proc/self/status")
ABOUT = {"environment": {"versions": {"torch": "2"}}, "exact": True, "created": 1.5}


def state(size: int = 6) -> dict[str, Any]:
    return {"weights": torch.arange(size, dtype=torch.float32), "steps": 7, "name": "a", "position": np.arange(3)}


def save(directory: Path, *steps: int, kind: str = "step", keep: int = 3, **components: Any) -> Checkpoints:
    checkpoints = Checkpoints(directory, keep)
    for step in steps:
        checkpoints.save(kind, step, components or {"learner": state(step), "actor": {"env": state()}}, ABOUT)
    return checkpoints


# What goes in comes out.

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


def assert_equal(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        assert [type(key) for key in one] == [type(key) for key in other]
        for key in one:
            assert_equal(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            assert_equal(left, right)
    elif isinstance(one, np.ndarray | torch.Tensor):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_array_equal(one, other)
    else:
        assert one == other


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(KEYS, TREES, max_size=4))
def test_every_tree_of_state_comes_back_as_it_was(tree: dict[Any, Any]) -> None:
    assert_equal(tree, stored(tree))


def test_odd_leaves_come_back() -> None:
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
    back = stored(odd)
    assert back["generator"] == generator
    assert back["infinite"] == odd["infinite"]
    np.testing.assert_array_equal(back["strided"], odd["strided"])
    np.testing.assert_array_equal(back["transposed"], odd["transposed"])
    assert back["half"].dtype == torch.bfloat16
    assert back["scalar"] == np.float32(0.1)
    assert back["flag"] is True
    np.testing.assert_array_equal(back["big_endian"], odd["big_endian"])
    assert np.isnan(stored({"nan": float("nan")})["nan"])


def test_loaded_states_may_be_changed_in_place() -> None:
    back = stored(state())
    back["weights"].add_(1)
    back["position"] += 1
    assert back["position"].tolist() == [1, 2, 3]


def test_arrays_of_all_types_come_back_and_are_the_loaders_own(tmp_path: Path) -> None:
    tree = {"arrays": ARRAYS, "tensors": TENSORS}
    checkpoints = save(tmp_path, 1, everything=tree)
    for _ in range(2):
        back = checkpoints.load(["step"])[1]["everything"]
        assert_equal(tree, back)
        for array in back["arrays"]:
            assert array.flags.aligned
            array.fill(0)


@pytest.mark.skipif(not STATUS.exists(), reason="the system does not tell what memory is a process's own")
def test_loading_a_large_replay_takes_its_memory_once(tmp_path: Path) -> None:
    size = 2**27
    save(tmp_path, 1, buffer=Whole(np.ones((size // 64, 1, 64), np.uint8)).state_dict(size // 64))
    before = own_memory()
    state = Checkpoints(tmp_path).load(["step"])[1]["buffer"]
    assert own_memory() - before < size // 4
    loaded = Whole.load(state, size // 64, "memory")
    assert own_memory() - before < 1.25 * size
    assert loaded.take(np.array([size // 64 - 1]))[0].tolist() == [1] * 64


def own_memory() -> int:
    """Bytes that are this process's alone, without files that are mapped."""
    (kilobytes,) = re.findall(r"^RssAnon:\s+(\d+) kB$", STATUS.read_text(), re.M)
    return 1024 * int(kilobytes)


@pytest.mark.parametrize("leaf", [object(), {1, 2}, b"bytes", np.array([object()]), np.array(["text"]), {1.5: 1}])
def test_invalid_states_are_refused_by_name(tmp_path: Path, leaf: Any) -> None:
    with pytest.raises(TypeError, match="/inner/here"):
        save(tmp_path, 1, learner={"inner": {"here": leaf}})
    save(tmp_path, 1)  # nothing of the failure is in the way


# Listing, keeping, choosing.


def test_the_last_ones_are_kept_and_best_and_final_apart(tmp_path: Path) -> None:
    save(tmp_path, 1, 2, 3, 4, 5)
    save(tmp_path, 2, 4, kind="best")
    checkpoints = save(tmp_path, 5, kind="final")
    names = sorted(path.name.replace("0" * 11, "") for path in tmp_path.iterdir())
    assert names == ["best-4", "final-5", "step-3", "step-4", "step-5"]
    assert [(saved.kind, saved.step) for saved in checkpoints.kept("final", "step")][:2] == [("final", 5), ("step", 5)]
    assert [saved.step for saved in checkpoints.kept("best")] == [4]


def test_the_one_just_written_is_kept_even_if_later_ones_lie_there(tmp_path: Path) -> None:
    """A run that resumed from an earlier point tells another story from there; the later ones are of the old one."""
    save(tmp_path, 3, 7, kind="best")
    assert [saved.step for saved in save(tmp_path, 5, kind="best").kept("best")] == [5]
    save(tmp_path, 1, 2, 3, 9, keep=2)
    assert [saved.step for saved in save(tmp_path, 4, keep=2).kept("step")] == [4, 3]
    assert [saved.step for saved in save(tmp_path, 5, 6, 7, keep=0).kept("step")] == [7, 6, 5, 4, 3]  # all


def test_saving_again_replaces(tmp_path: Path) -> None:
    save(tmp_path, 1, learner={"x": 1})
    checkpoints = save(tmp_path, 1, learner={"x": 2})
    assert checkpoints.load(["step"])[1] == {"learner": {"x": 2}}
    assert len(list(tmp_path.iterdir())) == 1


def test_one_component_can_be_read_alone(tmp_path: Path) -> None:
    checkpoints = save(tmp_path, 4)
    saved, components, manifest, warnings = checkpoints.load(["step"], "learner")
    assert (saved.kind, saved.step, warnings) == ("step", 4, [])
    assert list(components) == ["learner"]
    assert manifest["environment"] == ABOUT["environment"]
    assert manifest["components"] == ["actor", "learner"]


def test_no_checkpoint_at_all_is_said_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadCheckpoint, match=r"no readable final or step checkpoint; bring back its files .* or train"):
        Checkpoints(tmp_path / "absent").load(["final", "step"])


# Damage.


def files_of(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    """In every file, the manifest included; so are cut ends, zero ends and added bytes."""
    (saved,) = save(tmp_path, 3).kept()
    draws = random.Random(0)
    for path in files_of(saved.path):
        content = path.read_bytes()
        spoilt = [flip(content, draws.randrange(8 * len(content))) for _ in range(200)]
        spoilt += [content[: draws.randrange(len(content))] for _ in range(20)]
        spoilt += [content[:-n] + bytes(n) for n in (1, 8, 50)]
        spoilt += [content + more for more in (b"\0", b" ", b"\n")] + [b""]
        for other in (other for other in spoilt if other != content):
            path.write_bytes(other)
            with pytest.raises(BadCheckpoint, match="damaged"):
                read(saved.path)
        path.write_bytes(content)
    read(saved.path)


def flip(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_missing_swapped_and_foreign_files_are_noticed(tmp_path: Path) -> None:
    save(tmp_path / "a", 3)
    save(tmp_path / "b", 4)
    (saved,) = Checkpoints(tmp_path / "a").kept()
    (other,) = Checkpoints(tmp_path / "b").kept()
    for path in files_of(saved.path):
        content = path.read_bytes()
        path.unlink()
        with pytest.raises(BadCheckpoint, match="damaged"):
            read(saved.path)
        for source in [*files_of(saved.path), other.path / path.name]:
            if source.read_bytes() != content:
                path.write_bytes(source.read_bytes())
                with pytest.raises(BadCheckpoint, match="damaged"):
                    read(saved.path)
        path.write_bytes(content)
    read(saved.path)


def test_a_checkpoint_under_the_name_of_another_is_noticed(tmp_path: Path) -> None:
    (saved,) = save(tmp_path, 3).kept()
    saved.path.rename(tmp_path / "step-000000000009")
    with pytest.raises(BadCheckpoint, match="damaged"):
        Checkpoints(tmp_path).load(["step"])


@pytest.mark.parametrize("written", [1, FORMAT + 1])
def test_a_checkpoint_of_another_format_says_who_can_read_it(tmp_path: Path, written: int) -> None:
    about = {"environment": {"versions": {"rlplug-core": "0.0.7"}}}
    path = Checkpoints(tmp_path).save("step", 3, {"events": {}}, {**about, "format": written}).path
    sentence = (
        f"checkpoint step-000000000003 has format {written}, which rlplug-core 0.0.7 wrote, and this version reads "
        f"format {FORMAT}; install that version to use it"
    )
    for attempt in (lambda: read(path), lambda: Checkpoints(tmp_path).load(["step"])):
        with pytest.raises(BadCheckpoint, match=re.escape(sentence)) as caught:
            attempt()
        assert "from a copy" not in str(caught.value)


def test_the_one_before_is_taken_and_the_reason_given(tmp_path: Path) -> None:
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
def test_a_manifest_of_anything_raises_only_our_own_error(content: Any) -> None:
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "manifest.json").write_text(json.dumps(content))
        with pytest.raises(BadCheckpoint):
            read(Path(directory))


# Hostile checkpoints: well-formed, hashes right, made to do harm.


def forged(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Rewrite a manifest with a right hash, as an attacker can."""
    manifest = json.loads((path / "manifest.json").read_bytes())
    del manifest["sha256"]
    change(manifest)
    (path / "manifest.json").write_bytes(seal_manifest(manifest))


@pytest.mark.parametrize("name", ["../secret", "..", "/etc/passwd", "sub/secret", "a\\b", "", "learner.json", "a\0b"])
def test_a_manifest_cannot_point_outside(tmp_path: Path, name: str) -> None:
    (saved,) = save(tmp_path / "run", 1).kept()
    (tmp_path / "run" / "secret.json").write_text('{"$dict": [["stolen", 1]]}')
    forged(saved.path, lambda manifest: manifest["components"].append(name))
    with pytest.raises(BadCheckpoint, match="cannot be a component's name"):
        read(saved.path)
    digest = hashlib.sha256((tmp_path / "run" / "secret.json").read_bytes()).hexdigest()
    files = {Path(f"{name}.json").name: digest}
    forged(saved.path, lambda manifest: manifest.update(components=[name], files=files))
    with pytest.raises(BadCheckpoint, match="cannot be a component's name"):
        read(saved.path)


def test_a_file_that_the_manifest_does_not_vouch_for_is_not_read(tmp_path: Path) -> None:
    (saved,) = save(tmp_path, 1).kept()
    forged(saved.path, lambda manifest: manifest["files"].pop("learner.json"))
    with pytest.raises(BadCheckpoint, match=r"KeyError: 'learner\.json'"):
        read(saved.path)
    forged(saved.path, lambda manifest: manifest.update(files={}))
    with pytest.raises(BadCheckpoint, match="KeyError: "):
        read(saved.path)


def headed(header: bytes) -> bytes:
    """A safetensors file with this header and eight bytes of data."""
    return len(header).to_bytes(8, "little") + header + bytes(8)


def test_torch_errors_of_unreadable_files_become_os_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The faults of `tests.faults.files` met it: safetensors opens the file, then torch opens it once more."""
    path = Checkpoints(tmp_path).save("step", 1, {"part": {"x": np.arange(3)}}, {}).path

    def refused(path: Path) -> None:
        raise RuntimeError(f"unable to open file <{path}> in read-only mode: Input/output error (5)")

    monkeypatch.setattr("rlplug_core.runs.component_files.load_file", refused)
    with pytest.raises(
        BadCheckpoint, match=r"cannot be read: .*Input/output error.*; see whether the disk is sound, then type"
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
        ("learner.safetensors", headed(b"[1]")),
        ("learner.safetensors", headed(b'{"a": {"dtype": "X9", "shape": [1], "data_offsets": [0, 8]}}')),
        ("learner.safetensors", headed(b'{"a": {"dtype": "F99", "shape": [1], "data_offsets": [0, 8]}}')),
        ("learner.safetensors", headed(b'{"a": {"dtype": "F32", "shape": [9], "data_offsets": [0, 8]}}')),
        ("learner.safetensors", headed(b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": ["x"]}}')),
        ("learner.safetensors", b"\x80\x04\x95" + b"cos\nsystem\n"),
    ],
)
def test_content_made_to_do_harm_is_damage_like_any_other(tmp_path: Path, file: str, content: bytes) -> None:
    (saved,) = save(tmp_path, 1).kept()
    (saved.path / file).write_bytes(content)
    forged(saved.path, lambda manifest: manifest["files"].update({file: hashlib.sha256(content).hexdigest()}))
    with pytest.raises(BadCheckpoint, match="damaged"):
        read(saved.path)


def test_parts_made_to_do_harm_are_damage_although_all_hashes_fit(tmp_path: Path) -> None:
    (saved,) = save(tmp_path, 1).kept()
    clock = {"total": 9, "limit": 9, "steps": 1, "updates": 0}
    for scale in (1e300, -1.0):  # a tensor of float32 takes no 1e300
        with pytest.raises(BadFile, match="scale"):
            check_component(saved.path, "clock", {**clock, "scale": scale})
    with pytest.raises(BadCheckpoint, match="has no environment"):
        recorded_environment("step-000000000001", {"environment": None})
    forged(saved.path, lambda manifest: manifest.update(environment={}))
    with pytest.raises(BadCheckpoint, match="versions"):
        read(saved.path)


def test_nothing_is_pickled(tmp_path: Path) -> None:
    for path in files_of(save(tmp_path, 1).kept()[0].path):
        assert path.suffix in (".json", ".safetensors")
        if path.suffix == ".json":
            json.loads(path.read_bytes())


# Kills.


def killed_writer(directory: Path, begin: int, rounds: int, seconds: float) -> int:
    """Kill a writer a moment after it acknowledged some rounds; returns the last step that it did."""
    ours, theirs = Pipe(duplex=False)
    writer = started(write_for_ever, str(directory), begin, theirs)
    theirs.close()
    heard = [int(ours.recv_bytes()) for _ in range(rounds)]
    writer.join(seconds)
    writer.kill()
    writer.join()
    while ours.poll():
        try:
            heard.append(int(ours.recv_bytes()))
        except EOFError:
            break
    return heard[-1] if heard else 0


def test_a_kill_at_any_moment_leaves_the_last_one_whole(tmp_path: Path) -> None:
    """Writers are killed at random moments; never is a checkpoint damaged, or one that was reported as saved gone."""
    directory, draws = tmp_path / "checkpoints", random.Random(1)
    acknowledged, best = 0, 0
    for _ in range(100):
        rounds, seconds = draws.choice([0, 0, 1]), draws.uniform(0.0, 0.01)
        acknowledged = max(acknowledged, killed_writer(directory, acknowledged + 1, rounds, seconds))
        if acknowledged:
            acknowledged, best = check_after_kill(directory, acknowledged, best)
    assert acknowledged > 20
    save(directory, acknowledged + 1)
    save(directory, 1, kind="best")
    assert not [path for path in directory.iterdir() if path.name.startswith(".")]  # what kills left behind is cleared


def check_after_kill(directory: Path, acknowledged: int, best: int) -> tuple[int, int]:
    """Every checkpoint there is can be read; returns the step of the newest and the content of the best."""
    checkpoints = Checkpoints(directory)
    saved, components, _, warnings = checkpoints.load(["step"])
    assert not warnings
    assert saved.step >= acknowledged
    assert components["learner"]["step"] == saved.step
    now: int = checkpoints.load(["best"])[1]["learner"]["step"]
    assert now >= best
    return saved.step, now


def test_a_kill_before_each_file_operation_leaves_the_last_one_whole(tmp_path: Path) -> None:
    died = 0
    while True:
        directory = tmp_path / str(died)
        save(directory, 1, kind="best", learner={"version": 1})
        save(directory, 1, learner={"version": 1})
        writer = started(write_once, str(directory), died + 1)
        writer.join()
        for kind in ("best", "step"):
            saved, components, _, warnings = Checkpoints(directory).load([kind])
            assert not warnings, (died, kind)
            assert components["learner"]["version"] in (saved.step, 2)
        if writer.exitcode == 0:
            break
        died += 1
    assert died > 15
