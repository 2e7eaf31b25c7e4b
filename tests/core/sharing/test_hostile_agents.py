"""Hostile shared agents raise one sentence, write nothing and execute nothing."""

from __future__ import annotations

import json
import os
import pickle
import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from gymnasium import spaces
from safetensors.torch import save

from rlplug_core import load
from rlplug_core.errors import RlplugError, UsageError
from rlplug_core.runs import Run
from rlplug_core.runs.card import card
from rlplug_core.runs.listing import Summary
from rlplug_core.sharing.agent_files import LIMITS, MANIFEST, check_card
from rlplug_core.sharing.pull import pull
from rlplug_core.types import Spec
from tests.core.harmful import Bomb
from tests.core.sharing.agents import Files, FileServer, agent_files, change_json, put, serving, with_manifest

Change = Callable[[Files], Files]


def change(name: str, **parts: object) -> Change:
    """Change values of a JSON file; the manifest lists the changed file."""
    return lambda files: with_manifest(change_json(files, name, lambda value: value.update(parts)))


def replace_file(name: str, data: bytes | str) -> Change:
    return lambda files: with_manifest({**files, name: data.encode() if isinstance(data, str) else data})


def change_manifest(**parts: object) -> Change:
    return lambda files: change_json(with_manifest(files), MANIFEST, lambda value: value.update(parts))


def list_file(name: str, **about: object) -> Change:
    """Add a file to the manifest; the file itself may be missing."""
    line = {"bytes": 1, "sha256": "0" * 64, **about}
    return lambda files: change_json(with_manifest(files), MANIFEST, lambda value: value["files"].update({name: line}))


def raw_manifest(data: bytes) -> Change:
    return lambda files: {**with_manifest(files), MANIFEST: data}


def add_step(*parts: object) -> Change:
    """Insert a step at the start of the program."""

    def insert(value: dict[str, dict[str, list[object]]]) -> None:
        value["program"]["steps"].insert(0, list(parts))

    return lambda files: with_manifest(change_json(files, "policy.json", insert))


def swap_weights(files: Files) -> Files:
    return {**with_manifest(files), "policy.safetensors": files["policy.safetensors"][:-1] + b"\x07"}


def huge_header(files: Files) -> Files:
    data = struct.pack("<Q", 2**40) + b"{}"
    return with_manifest({**change_hash(files, data), "policy.safetensors": data})


def change_hash(files: Files, data: bytes) -> Files:
    from hashlib import sha256

    digest = {"policy.safetensors": sha256(data).hexdigest()}
    return change_json(files, "policy.json", lambda value: value.update(sha256=digest))


def pickle_weights(files: Files) -> Files:
    data = pickle.dumps(Bomb())
    return with_manifest({**change_hash(files, data), "policy.safetensors": data})


def remove_weights(files: Files) -> Files:
    data = save({})
    return with_manifest({**change_hash(files, data), "policy.safetensors": data})


def chunk(name: bytes, body: bytes) -> bytes:
    """Return a part of a WebP."""
    return name + struct.pack("<I", len(body)) + body + bytes(len(body) % 2)


def webp(body: bytes) -> bytes:
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


def film(data: bytes) -> Change:
    return replace_file("film.webp", data)


def show_another_picture(files: Files) -> Files:
    card = FILM_CARD + "![An episode](https://example.org/a.webp)\n"
    return with_manifest({**files, "README.md": card.encode(), "film.webp": webp(PICTURE)})


PICTURE = chunk(b"VP8L", b"picture")
FILM_CARD = "# a\n\n![An episode](film.webp)\n"
BIG = {"kind": "Box", "shape": [2**20, 2**20], "dtype": "float32", "low": 0, "high": 1}
DEEP = "[" * 100_000
CONFIG = {"name": "x", "options": {}, "sources": {"algorithm": {"file": "/a.py", "copy": "a.py", "sha256": ""}}}
CASES: dict[str, tuple[Change, str]] = {
    "no manifest": (lambda files: files, "agent.json cannot be read"),
    "an empty manifest": (raw_manifest(b""), "no valid agent.json"),
    "a manifest that is a list": (raw_manifest(b"[]"), "no valid agent.json"),
    "a manifest that nests": (raw_manifest(DEEP[:60_000].encode()), "no valid agent.json"),
    "a manifest of other bytes": (raw_manifest(b"\xff\xfe"), "no valid agent.json"),
    "a manifest with escape codes": (raw_manifest(b'{"format": "\x1b[31m"}'), "no valid agent.json"),
    "a manifest above its size": (raw_manifest(b" " * 2**17), "65,536"),
    "another format": (change_manifest(format=2), "format 2"),
    "no files": (change_manifest(files={}), "does not list policy.json"),
    "files without hashes": (change_manifest(files={"policy.json": {"bytes": 3}}), "no valid agent.json"),
    "negative bytes": (list_file("README.md", bytes=-1), "no valid agent.json"),
    "a hash with a path": (list_file("README.md", sha256="../" * 21 + "a"), "no valid agent.json"),
    "a file above its size": (list_file("policy.json", bytes=2**40), "more than the limit of"),
    "weights above their size": (list_file("policy.safetensors", bytes=2**31), "more than the limit of"),
    "a path out of the folder": (list_file("../executed"), "a shared agent does not have"),
    "an absolute path": (list_file("/tmp/executed"), "a shared agent does not have"),
    "a path of Windows": (list_file("..\\executed"), "a shared agent does not have"),
    "a name with a null": (list_file("a\0b"), "a shared agent does not have"),
    "a name with escape codes": (list_file("\x1b]0;title\x07"), "a shared agent does not have"),
    "code among the files": (list_file("sitecustomize.py"), "a shared agent does not have"),
    "a pickle among the files": (list_file("policy.pt"), "a shared agent does not have"),
    "a checkpoint among the files": (list_file("checkpoints"), "a shared agent does not have"),
    "a listed file that is absent": (list_file("config.json"), "config.json cannot be read"),
    "weights that were swapped": (swap_weights, "its size or its hash differs"),
    "a longer file than listed": (list_file("README.md"), "README.md"),
    "weights of another policy": (
        lambda files: with_manifest({**files, "policy.safetensors": save({})}),
        "has changed since it was written",
    ),
    "weights that are a pickle": (pickle_weights, "SafetensorError"),
    "weights with a huge header": (huge_header, "SafetensorError"),
    "no weights": (remove_weights, "KeyError"),
    "a policy that is a list": (replace_file("policy.json", "[]"), "does not contain a readable policy"),
    "a policy that nests": (replace_file("policy.json", DEEP), "nests too deep"),
    "a policy with a huge number": (replace_file("policy.json", "9" * 5000), "does not contain a readable policy"),
    "a policy of another format": (change("policy.json", format=9), "format 9"),
    "an operation that is not torch's": (add_step("a", "os.system", ["touch executed"], {}), "not one of torch's core"),
    "an operation on attributes": (add_step("a", "operator.attrgetter", ["x"], {}), "not one of torch's core"),
    "an operation that reads files": (
        add_step("a", "aten.from_file.default", ["/etc/passwd"], {}),
        "not one of torch's",
    ),
    "an operation with unchecked inputs": (
        add_step("a", "aten.max_pool2d_with_indices_backward.default", [], {}),
        "not one of torch's core",
    ),
    "an operation with escape codes": (add_step("a", "\x1b[31mred", [], {}), "not one of torch's core"),
    "an attribute of torch": (
        add_step("a", "aten.full.default", [[1], 0], {"dtype": {"torch": "load"}}),
        "is not a tensor type",
    ),
    "a program that fills the memory": (add_step("a", "aten.full.default", [[2**40], 0], {}), "numbers; do not use it"),
    "a step of other values": (add_step("a", "aten.relu.default", [{"value": "absent"}], {}), "KeyError"),
    "a step with few parts": (add_step("a"), "does not contain a readable policy"),
    "outputs that are absent": (
        lambda files: with_manifest(
            change_json(files, "policy.json", lambda value: value["program"].update(outputs=["absent"]))
        ),
        "does not run",
    ),
    "a space that fills the memory": (change("policy.json", observation_space=BIG), "a space has more than"),
    "a space of another kind": (change("policy.json", action_space={"kind": "Code"}), "readable policy"),
    "a memory that fills the machine": (change("policy.json", memory={"h": 2**40}), "cannot be used"),
    "wrappers that are a text": (change("policy.json", wrap="frame-stack"), "cannot be used"),
    "steps that are a text": (change("policy.json", step="many"), "cannot be used"),
    "a card with a script": (replace_file("README.md", "# a\n<script>alert(1)</script>"), "has markup (<)"),
    "a card with a picture": (replace_file("README.md", "![x](https://example.org/x.png)"), "has markup (]()"),
    "a card with a reference": (replace_file("README.md", "[x][y]\n\n[y]: javascript:alert(1)"), "has markup"),
    "a card with escape codes": (replace_file("README.md", "\x1b[2Jgone"), "has control characters"),
    "a card with reversed text": (replace_file("README.md", "a\u202eb"), "has control characters"),
    "a film that is a page": (film(b"<html><script>alert(1)</script>"), "is not a WebP film"),
    "a film with a page after it": (film(webp(PICTURE) + b"<script>alert(1)</script>"), "other bytes after"),
    "a film with text in it": (film(webp(PICTURE + chunk(b"EXIF", b"<script>"))), "the part 'EXIF'"),
    "a film with a page in a frame": (film(webp(chunk(b"ANMF", bytes(16) + chunk(b"XMP ", b"x")))), "the part 'XMP'"),
    "a film with escape codes": (film(webp(chunk(b"\x1b[2J", b"x"))), "is damaged or not a picture"),
    "a film with a cut picture": (film(webp(PICTURE)[:-1]), "other bytes after"),
    "a film with a wrong length": (film(webp(b"VP8 " + b"\xff" * 4)), "the part 'VP8'"),
    "a film with half a name": (film(webp(b"VP")), "the part 'VP'"),
    "a film with many pixels": (film(webp(chunk(b"VP8X", bytes(4) + b"\xff" * 6))), "16,777,216 pixels"),
    "a film with large frames": (film(webp(chunk(b"ANMF", bytes(6) + b"\xff" * 6 + bytes(4)))), "16,777,216 pixels"),
    "a film that never ends": (film(webp(chunk(b"ANMF", bytes(16)) * 3000)), "3,000 frames"),
    "a film above its size": (list_file("film.webp", bytes=2**23), "more than the limit of"),
    "a card that shows no film": (replace_file("README.md", "# a\n\n![An episode](film.webp)\n"), "has markup (]()"),
    "a card that shows more": (show_another_picture, "has markup (]()"),
    "a record with source files": (replace_file("config.json", json.dumps(CONFIG)), "names source files"),
    "a record that is a list": (replace_file("config.json", "[]"), "names source files"),
    "a record that nests": (replace_file("config.json", DEEP), "nests too deep"),
}


def pull_error(word: str, out: Path) -> str:
    """Return the error of a pull, or "" if it succeeds."""
    try:
        pull(word, out)
    except RlplugError as error:
        return str(error)
    return ""


def test_hostile_agents_raise_one_sentence(workdir: Path) -> None:
    assert len(CASES) >= 40
    good = agent_files()
    wrong = []
    for number, (name, (alter, message)) in enumerate(CASES.items()):
        folder = put(workdir / str(number), alter(good))
        error = pull_error(str(folder), workdir / f"out{number}")
        if message not in error or not error.isprintable() or len(error) > 600:
            wrong.append(f"{name}: {error!r}")
        if (workdir / f"out{number}").exists() or list(workdir.rglob("executed")):
            wrong.append(f"{name}: something was written")
    assert not wrong, "\n".join(wrong)


def test_links_and_pipes_in_a_folder_are_not_read(workdir: Path) -> None:
    folder = put(workdir / "agent", with_manifest(agent_files()))
    for name in LIMITS:
        if (folder / name).exists():
            (folder / name).rename(workdir / "kept")
            os.mkfifo(folder / name)
            assert "regular file" in pull_error(str(folder), workdir / "out")
            (folder / name).unlink()
            (folder / name).symlink_to("/dev/zero")
            assert "regular file" in pull_error(str(folder), workdir / "out")
            (folder / name).unlink()
            (workdir / "kept").rename(folder / name)
    assert not pull_error(str(folder), workdir / "out")


def test_servers_cannot_redirect_elsewhere_or_send_more(workdir: Path) -> None:
    with serving(FileServer()) as server:
        server.files = {
            "/away/agent.json": "http://example.org/agent.json",
            "/file/agent.json": "file:///etc/passwd",
            "/round/agent.json": f"{server.address}/round/agent.json",
            "/much/agent.json": b" " * 2**20,
        }
        messages = {"away": "over https only", "file": "file", "round": "redirect", "much": "65,536", "none": "404"}
        for name, message in messages.items():
            assert message in pull_error(f"{server.address}/{name}", workdir / "out"), name
    for word in ("http://example.org/agent", "https:agent", "hub:../x", "hub:a/b/c", "zoo:../../x", "mlflow:a/../b"):
        with pytest.raises(UsageError):
            pull(word, workdir / "out")
    assert not (workdir / "out").exists()


@pytest.mark.parametrize(
    ("env", "wrap"),
    [
        ("./evil.py:Env", []),
        ("evil:Env", []),
        ("CartPole-v1", ["./evil.py:Wrapper"]),
        ("CartPole-v1", ["evil:Wrapper:size=1"]),
        ("CartPole-v1", ["gymnasium:RecordVideo:video_folder=executed"]),
    ],
)
def test_environment_of_an_agent_executes_nothing(workdir: Path, env: str, wrap: list[str]) -> None:
    (workdir / "evil.py").write_text("import os\nos.system('touch executed')\n")
    evaluation = {"env": env, "wrap": wrap}
    pull(str(put(workdir / "a", with_manifest(agent_files(evaluation=evaluation)))), workdir / "out")
    with pytest.raises(UsageError, match=r"would (execute|write)"):
        Run(workdir / "out").evaluate(1)
    assert not list(workdir.rglob("executed*"))
    assert load(workdir / "out")([0.0, 0.0, 0.0, 0.0]) in (0, 1)  # the policy needs neither


def test_cards_of_runs_with_odd_names_pass() -> None:
    bad = "<b>[x](y)|`\x1b[31m\nz"
    summary = Summary(bad, "runs/x", "finished", algorithm=bad, env=bad, seed=1, total_timesteps=5)
    config = {"options": {"log": bad}, "origins": {}, "algorithm": bad, "env": bad}
    spec = Spec(spaces.Box(0, 1, (2, 2)), spaces.Discrete(2), 1, bad)
    text = card(summary, config, {"checkpoint": "best", "step": 5, "wrap": []}, spec)
    before, _, after = text.partition("```sh\n")
    check_card(before + after.partition("```")[2])
    assert yaml.safe_load(text.split("---")[1])["tags"][0] == "reinforcement-learning"
    assert not re.search("^z", text, re.MULTILINE)


def test_pulls_a_film(workdir: Path) -> None:
    files = {**agent_files(), "film.webp": webp(PICTURE), "README.md": FILM_CARD.encode()}
    put(workdir / "agent", with_manifest(files))
    assert (pull("agent", workdir / "pulled") / "film.webp").read_bytes() == webp(PICTURE)
