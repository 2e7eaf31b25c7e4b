"""`push` and `pull` share the agent of a run in each kind of destination, and other commands take it from there."""

from __future__ import annotations

import base64
import errno
import json
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from rlplug_core import load
from rlplug_core.runs import Run, listing
from rlplug_core.runs.listing import Summary
from tests.cli.conftest import Result
from tests.core.sharing.agents import FileServer, Handler, serving

Call = Callable[..., Result]
SHORT = ("--total-timesteps", "600", "--eval-episodes", "2", "--final-eval-episodes", "2", "-P", "no:mlflow")
STATE = [0.01, 0.02, 0.03, 0.04]


class HubHandler(Handler):
    """The parts of the API of the Hugging Face Hub that a push and a pull use."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/api/repos/create":
            request = json.loads(body)
            owner = request.get("organization", "owner")
            self.answer({"url": f"{self.server.address}/{owner}/{request['name'].rpartition('/')[2]}"})
        elif "/preupload/" in self.path:
            names = [file["path"] for file in json.loads(body)["files"]]
            files = [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]
            self.answer({"files": files})
        elif "/commit/" not in self.path:
            self.answer({"errors": [], "warnings": []})  # about the front matter of the card
        else:
            repository = self.path.removeprefix("/api/models/").partition("/commit/")[0]
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    place = f"/{repository}/resolve/main/{line['value']['path']}"
                    self.server.files[place] = base64.b64decode(line["value"]["content"])
            url = f"{self.server.address}/{repository}/commit/1"
            self.answer({"commitUrl": url, "commitOid": "1", "success": True})

    def answer(self, value: object) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())


@pytest.fixture(autouse=True)
def cache(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))


@pytest.fixture
def run(rlplug: Call) -> Run:
    assert rlplug("run", "ppo", "CartPole-v1", "--name", "mine", *SHORT).code == 0
    return Run("mine")


def push_and_pull(rlplug: Call, run: Run, destination: str) -> str:
    """Push a run, pull it with the word that `push` prints, compare both agents, and return the word."""
    pushed = rlplug("push", "mine", destination)
    assert pushed.code == 0, pushed.err
    match = re.search(r"get it +rlplug pull (\S+)", pushed.out)
    assert match, pushed.out
    word = match[1]
    pulled = rlplug("pull", word)
    assert pulled.code == 0, pulled.err
    assert "again    rlplug run ppo CartPole-v1 --set total_timesteps=600" in pulled.out
    assert load(word)(STATE) == run.policy()(STATE)
    own = json.loads(rlplug("evaluate", "mine", "--episodes", "3", "--seed", "5", "--json").out)
    other = json.loads(rlplug("evaluate", word, "--episodes", "3", "--seed", "5", "--json").out)
    assert own["returns"] == other["returns"]
    return word


def test_share_in_a_folder_and_at_an_address(rlplug: Call, run: Run, place: Path) -> None:
    push_and_pull(rlplug, run, "shared")
    filmed = rlplug("push", "mine", "filmed", "--film")
    assert filmed.code == 0, filmed.err
    assert "\n![An episode](film.webp)\n" in (place / "filmed" / "README.md").read_text(encoding="utf-8")
    assert 0 < (place / "filmed" / "film.webp").stat().st_size <= 2**22
    assert rlplug("push", "filmed", "again").code == 0
    assert (place / "again" / "film.webp").read_bytes() == (place / "filmed" / "film.webp").read_bytes()
    assert "exists already" in rlplug("push", "mine", "shared").err
    with serving(FileServer()) as server:
        word = push_and_pull(rlplug, run, f"{server.address}/agents/ppo")
        assert rlplug("pull", word, "--out", "copy").code == 0
    names = {path.name: path.read_bytes() for path in (place / "copy").iterdir()}
    assert names == {path.name: path.read_bytes() for path in (place / "shared").iterdir()}
    for data in names.values():
        assert str(place).encode() not in data
    again = rlplug("push", "copy", "third")  # a pulled agent can be shared again
    assert again.code == 0, again.err
    assert (place / "third" / "journal.jsonl").read_bytes() == names["journal.jsonl"]


def test_commands_take_a_shared_agent(rlplug: Call, run: Run, place: Path) -> None:
    with serving(FileServer()) as server:
        word = push_and_pull(rlplug, run, f"{server.address}/ppo")
        film = rlplug("play", word, "--video", "film.gif", "--every", "20")
        assert film.code == 0, film.err
        assert (place / "film.gif").stat().st_size > 0
        words = ("--init", word, "--init-parts", "policy", "--name", "warm", "--seed", "2")
        warm = rlplug("run", "ppo", "CartPole-v1", *words, *SHORT)
        assert warm.code == 0, warm.err
        assert Run("warm").options["init"] == word
        compared = rlplug("compare", word, "warm", "--json", "--label", "init", "--bootstrap", "100")
        assert compared.code == 0, compared.err
        labels = {score["label"] for score in json.loads(compared.out)["scores"]}
        assert len(labels) == 2
        result = rlplug("evaluate", word, "--all-checkpoints", "--episodes", "2")
        assert result.out.count("best-") == 1, result.err
        own = json.loads(rlplug("compare", "mine", "--json", "--bootstrap", "100").out)["scores"]
        shared = json.loads(rlplug("compare", word, "--json", "--bootstrap", "100").out)["scores"]
        assert own == shared


@pytest.mark.usefixtures("with_store")
def test_share_as_a_registered_model_of_mlflow(rlplug: Call, run: Run) -> None:
    assert push_and_pull(rlplug, run, "mlflow:cartpole") == "mlflow:cartpole/1"
    assert rlplug("pull", "mlflow:cartpole").code == 0  # the newest version
    absent = rlplug("pull", "mlflow:cartpole/9")
    assert (absent.code, absent.err.count("\n")) == (2, 1)
    assert "next version itself" in rlplug("push", "mine", "mlflow:cartpole/7").err


@pytest.mark.skipif(find_spec("huggingface_hub") is None, reason="needs 'rlplug-core[hub]'")
def test_share_on_the_hub(rlplug: Call, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(FileServer(HubHandler)) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        monkeypatch.setenv("HF_TOKEN", "hf_test")
        assert push_and_pull(rlplug, run, "hub:owner/ppo-cartpole") == "hub:owner/ppo-cartpole"
        assert server.asked[-1].startswith("/owner/ppo-cartpole/resolve/main/")
    gone = rlplug("push", "mine", "hub:owner/other")
    assert (gone.code, gone.err.count("\n")) == (2, 1)


def test_agent_with_an_unreadable_journal_is_not_shared(
    rlplug: Call, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the past, it was shared with the command `rlplug run "" ""`. The card and the command each read it."""
    read_summary = listing._summary
    for readable in (0, 1):
        left = [run.path] * readable

        def fail_after_reads(path: Path, left: list[Path] = left) -> Summary:
            if not left:
                raise OSError(errno.EIO, "Input/output error")
            left.pop()
            return read_summary(path)

        monkeypatch.setattr(listing, "_summary", fail_after_reads)
        result = rlplug("push", str(run.path), "unshared")
        assert (result.code, "cannot be read: OSError: [Errno 5] Input/output error" in result.err) == (1, True), (
            result.err
        )
        assert not Path("unshared").exists()


@pytest.mark.parametrize("name", ["README.md", "journal.jsonl"])
def test_push_does_not_follow_a_link_in_an_export(rlplug: Call, run: Run, place: Path, name: str) -> None:
    (place / "secret").write_text("a private key")
    export = run.export(place / "exported")
    (export / name).unlink(missing_ok=True)
    (export / name).symlink_to(place / "secret")
    result = rlplug("push", "exported", "shared")
    assert (result.code, f"{name} cannot be used: it is not a regular file" in result.err) == (1, True), result.err
    assert not (place / "shared").exists()


def test_run_with_code_is_not_shared(rlplug: Call, place: Path) -> None:
    (place / "own.py").write_text("from gymnasium.envs.classic_control import CartPoleEnv as Env\n")
    assert rlplug("run", "ppo", "./own.py:Env", "--name", "mine", *SHORT).code == 0
    refused = rlplug("push", "mine", "shared")
    assert refused.code == 2
    assert "a shared agent has no code" in refused.err
    assert not (place / "shared").exists()
