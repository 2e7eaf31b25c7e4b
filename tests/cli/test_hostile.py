"""What strangers and broken code hand in: a slice of the hostile files, plugins that die, text with escape codes."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import random
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlplug_cli.output import stdout_to_stderr
from rlplug_cli.sweep import slurm
from rlplug_core import plugins
from rlplug_core.errors import BadFile, UsageError
from rlplug_core.runs.trust import add_seal
from tests.cli.conftest import Done
from tests.cli.warm import Fork
from tests.faults.hostile import World, called, indexes, sentences, tomls

RED = "\x1b[31mred\x1b]0;title\x07"
A2C = "from rlplug_algos.policy_gradient.a2c import A2C as Algo"
FEW = ("--total-timesteps", "400", "--eval-episodes", "1", "--final-eval-episodes", "0", "-P", "no:mlflow")


def package(place: Path, name: str, code: str) -> dict[str, str]:
    """A plugin that is installed for whoever has this environment."""
    (place / "site" / name).mkdir(parents=True)
    (place / "site" / name / "__init__.py").write_text("")
    (place / "site" / name / "algo.py").write_text(code)
    about = place / "site" / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: rlplug-core\n")
    (about / "entry_points.txt").write_text(f"[rlplug.algorithms]\n{name} = {name}.algo:Algo\n")
    return {"PYTHONPATH": str(place / "site")}


def spoiled(place: Path, name: str, env_code: str) -> str:
    """An environment in a file, CartPole but for a line that it executes at its 1,500th step."""
    (place / f"{name}.py").write_text(
        "import os, sys\nimport gymnasium\nfrom gymnasium.envs.classic_control import CartPoleEnv\nsteps = []\n"
        "class Env(CartPoleEnv):\n    def step(self, action):\n        steps.append(1)\n"
        f"        if len(steps) == 1500:\n            {env_code}\n        return super().step(action)\n"
    )
    return f"./{name}.py:Env"


def test_a_slice_of_the_hostile_files(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a thousand are in `tests/faults`."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    world = World(place)
    cases = [case for case in world.cases(random.Random(2)) if case.commands[0][0] != "sync"]
    wrong = [sentence for case in cases[::60] for sentence in world.judged(case)]
    assert not wrong, "\n".join(wrong)


def test_a_spoiled_index_ends_no_command_for_all(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(place, "spoilt", A2C)
    monkeypatch.syspath_prepend(place / "site")
    code, _, told = called(["index", "spoilt"])
    assert code == 0, told
    path = place / "site" / "spoilt" / "index" / "spoilt.json"
    words = ["list"]
    for name, content in [*indexes(random.Random(3), plugins.find("algorithms", "spoilt"))][::3]:
        path.write_bytes(content)
        code, said, told = called(words)
        assert not [*sentences(words, code, said, told)], name
        assert "\nppo " in said, name
        assert "\nspoilt " in said, name


def test_spoiled_option_files_are_one_sentence(place: Path) -> None:
    for name, content in tomls(random.Random(4)):
        (place / "options.toml").write_bytes(content)
        words = ["run", "a2c", "CartPole-v1", "--config", "options.toml", "--print-config"]
        code, said, told = called(words)
        assert not [*sentences(words, code, said, told)], name


@pytest.mark.parametrize(
    "code", ["import os; os._exit(0)", "import os; os.kill(os.getpid(), 11)"], ids=["exit", "segv"]
)
def test_a_plugin_in_whose_import_the_process_dies_is_named(
    place: Path, new_process: Callable[..., Done], code: str
) -> None:  # fmt: skip
    done = new_process("run", "deadly", "CartPole-v1", **package(place, "deadly", f"import os; {code}"))
    assert "rlplug: the process died while algorithm 'deadly' of deadly 1.0 was imported" in done.err
    assert "switch it off with -P no:deadly" in done.err


def test_an_import_that_ends_well_says_nothing(place: Path, new_process: Callable[..., Done]) -> None:
    done = new_process(
        "run",
        "fine",
        "CartPole-v1",
        "--help",
        **package(place, "fine", "from rlplug_algos.policy_gradient.a2c import A2C as Algo"),
    )
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize("code", [0, 3])
def test_an_environment_that_calls_sys_exit_has_failed(rlplug: Callable[..., Done], place: Path, code: int) -> None:
    env = spoiled(place, "leaving", f"sys.exit({code})")
    done = rlplug("run", "a2c", env, *FEW, "--name", "left", "--quiet")
    assert done.code == 1
    assert f"called sys.exit({code}) while it trained" in done.err
    assert json.loads((place / "runs/left/journal.jsonl").read_text().splitlines()[-1])["data"]["status"] == "failed"


def test_json_is_clean_whatever_an_environment_prints(place: Path, process: Callable[..., Done]) -> None:
    env = spoiled(place, "loud", "print('py'); os.system('echo child'); os.write(1, b'raw')")
    done = process("run", "a2c", env, *FEW, "--json", "--name", "loud")
    assert json.loads(done.out)["status"] == "finished"
    for noise in ("py\n", "child\n", "raw"):
        assert noise in done.err


def test_aside_gives_stdout_back(capfd: pytest.CaptureFixture[str]) -> None:
    with stdout_to_stderr() as own:
        print("noise")  # noqa: T201
        print("data", file=own)
    print("after", flush=True)  # noqa: T201
    assert capfd.readouterr().out == "data\nafter\n"


def test_escape_codes_of_an_environment_do_not_reach_the_terminal(rlplug: Callable[..., Done], place: Path) -> None:
    done = rlplug("run", "a2c", spoiled(place, "rude", f"raise ValueError({RED!r})"), *FEW, "--name", "rude", "--quiet")
    assert done.code == 1
    assert "[31mred" in done.err
    assert "\x1b" not in done.err + done.out
    assert "\x1b" not in (place / "runs/rude/error.txt").read_text()


def test_a_name_has_printable_characters(rlplug: Callable[..., Done], place: Path) -> None:
    done = rlplug("run", "a2c", "CartPole-v1", "--name", f"a{RED}b")
    assert (done.code, done.out) == (2, "")
    assert "use printable characters only" in done.err
    assert "\x1b" not in done.err
    assert not (place / "runs").exists()


def test_a_strangers_run_stops_without_trust(rlplug: Callable[..., Done], place: Path) -> None:
    env = spoiled(place, "own", "pass")
    assert rlplug("run", "a2c", env, *FEW, "--name", "one").code == 0
    assert rlplug("evaluate", "one", "--episodes", "1").code == 0
    config = json.loads((place / "runs/one/config.json").read_text())
    (place / "runs/one/config.json").write_text(json.dumps({**config, "seal": ""}))
    for words in (["evaluate", "one", "--episodes", "1"], ["resume", "one"], ["export", "one"], ["reproduce", "one"]):
        done = rlplug(*words)
        assert done.code == 2, words
        assert "sources/own-" in done.err
        assert done.err.endswith(
            "which this account did not write here; read it, then add --trust (trust=True in Python)\n"
        )
    assert rlplug("evaluate", "one", "--episodes", "1", "--trust").code == 0


@pytest.mark.parametrize(("answer", "code", "executed"), [("y", 0, True), ("n", 2, False)])
def test_on_a_terminal_the_user_is_asked(
    rlplug: Callable[..., Done], fork: Callable[..., Fork], place: Path, answer: str, code: int, executed: bool
) -> None:
    env = spoiled(place, "own", "pass")
    assert rlplug("run", "a2c", env, *FEW, "--name", "one").code == 0
    config = json.loads((place / "runs/one/config.json").read_text())
    (place / "runs/one/config.json").write_text(json.dumps({**config, "seal": ""}))
    (source,) = (place / "runs/one/sources").glob("own-*.py")
    (place / "runs/one/sources" / source.name).write_text(f"open('executed', 'w').close()\n{source.read_text()}")
    ended, said = on_a_terminal(fork, ["evaluate", "one", "--episodes", "1"], answer)
    assert re.search(r"this would execute .*own-.*; continue\? \[y/N\]", said), said
    assert (ended, (place / "executed").exists()) == (code, executed), said


GOOD_TASK = {"name": "a2c-CartPole-v1-s1", "algorithm": "a2c", "env": "CartPole-v1", "seed": 1, "words": []}
GOOD_SWEEP = {"format": 1, "kind": "sweep", "uid": "x", "created": 1.0, "files": {}, "tasks": [GOOD_TASK]}
SWEEP = ("sweep", "a2c", "CartPole-v1", "--seeds", "1", *FEW, "--name", "sw")
#: Values that no field may have: paths, options, control characters, other types.
HOSTILE = ("../../victim/docs", "/etc", "..", ".", "", "a/b", "--traceback", "a\nb", "sweep.json", "logs", None, [], {})


def victim(place: Path) -> Path:
    """A directory outside with a file that no command may touch."""
    (place / "victim" / "docs").mkdir(parents=True)
    (place / "victim" / "docs" / "a").write_text("precious")
    return place / "victim" / "docs" / "a"


def intact(path: Path) -> bool:
    return path.read_text() == "precious" and sorted(p.name for p in path.parent.iterdir()) == ["a"]


@pytest.mark.parametrize("sealed_here", [False, True])
@pytest.mark.parametrize("field", [*GOOD_TASK, *GOOD_SWEEP])
def test_hostile_values_in_a_sweep_file_start_nothing(
    rlplug: Callable[..., Done], place: Path, field: str, sealed_here: bool
) -> None:
    precious = victim(place)
    (place / "runs" / "sw").mkdir(parents=True)
    values = (
        [*HOSTILE, {"name": "x"}] if field in ("name", "kind", "uid", "format", "tasks") else [None, [], {}, 1 << 80]
    )
    for value in values:
        if (field, value) in (("words", []), ("files", {}), ("tasks", [])):
            continue
        content: dict[str, Any] = json.loads(json.dumps(GOOD_SWEEP))
        (content["tasks"][0] if field in GOOD_TASK else content)[field] = value
        text = json.dumps(add_seal(content) if sealed_here else {**content, "seal": "0"})
        (place / "runs" / "sw" / "sweep.json").write_text(text)
        done = rlplug(*SWEEP)
        assert done.code in (1, 2), (field, value, done.err)
        assert done.err.startswith("rlplug: runs/sw/"), (field, value, done.err)
        assert done.err.count("\n") == 1, done.err
        assert intact(precious)
        assert not [*(place / "runs" / "sw").glob("*/config.json")]


def test_a_sweep_file_of_another_account_lists_only_what_was_typed(rlplug: Callable[..., Done], place: Path) -> None:
    (place / "runs" / "sw").mkdir(parents=True)
    path = place / "runs" / "sw" / "sweep.json"
    path.write_text(json.dumps({**GOOD_SWEEP, "seal": "0"}))
    done = rlplug(*SWEEP)
    assert (done.code, "lists runs that this account did not start" in done.err) == (2, True), done.err
    path.write_text(json.dumps({**GOOD_SWEEP, "seal": "0", "tasks": [{**GOOD_TASK, "words": FEW[:6]}]}))
    done = rlplug(*SWEEP)
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    "name",
    [
        *("compare.html", "logs", "a2c-CartPole-v1-s1", "sweep.json", "lock", ".sweep.json.tmp"),
        pytest.param(".compare.html.tmp", marks=pytest.mark.slow),  # written as the one before
    ],
)
def test_a_planted_link_in_a_sweep_leads_nowhere(rlplug: Callable[..., Done], place: Path, name: str) -> None:
    precious = victim(place)
    (place / "runs" / "sw").mkdir(parents=True)
    for target in (precious, precious.parent):
        link = place / "runs" / "sw" / name
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        rlplug(*SWEEP)
        assert intact(precious), target
        assert (place / "victim").iterdir()


@pytest.mark.parametrize(
    "name",
    [
        *("study.db", "history.png", "trial-0000-s1", "logs", "sweep.json"),
        pytest.param("importance.png", marks=pytest.mark.slow),  # written as the one before
    ],
)
def test_a_planted_link_in_a_study_leads_nowhere(rlplug: Callable[..., Done], place: Path, name: str) -> None:
    pytest.importorskip("optuna")
    precious = victim(place)
    (place / "runs" / "study").mkdir(parents=True)
    for target in (precious, precious.parent, place / "victim" / "new"):
        link = place / "runs" / "study" / name
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        rlplug("tune", "a2c", "CartPole-v1", "--trials", "1", *FEW, "--gamma", "0.9,0.99", "--name", "study")
        assert intact(precious), target
        assert not (place / "victim" / "new").exists()


def test_an_export_and_a_film_do_not_follow_a_link_in_the_run(rlplug: Callable[..., Done], place: Path) -> None:
    assert rlplug("run", "a2c", "CartPole-v1", *FEW, "--name", "one").code == 0
    (place / "empty").mkdir()
    (place / "runs" / "one" / "export").symlink_to(place / "empty")
    done = rlplug("export", "one")
    assert (done.code, "export is not a directory of its own" in done.err) == (2, True), done.err
    (place / "runs" / "one" / "videos").symlink_to(place / "empty")
    done = rlplug("play", "one", "--episodes", "1")
    assert (done.code, "it is not a directory of the run's own; delete it" in done.err) == (1, True), done.err
    assert not [*(place / "empty").iterdir()]


@pytest.mark.parametrize("name", ["slurm.sh", "slurm.json", "logs", "logs/0.txt"])
def test_a_planted_link_beside_a_slurm_script_leads_nowhere(place: Path, name: str, monkeypatch: Any) -> None:
    precious = victim(place)
    directory = place / "runs" / "sw"
    (directory / name).parent.mkdir(parents=True)
    (directory / name).symlink_to(precious.parent if name == "logs" else precious)
    monkeypatch.setattr(slurm, "_ask", lambda command: SimpleNamespace(returncode=0, stdout="77", stderr=""))
    with contextlib.suppress(UsageError, BadFile):
        slurm.submit(directory, [0], 1, [])
    assert intact(precious)


@pytest.mark.parametrize("job", ["--help", "1\n2", "", None, {}, [1]])
def test_a_planted_job_number_is_not_asked_for(place: Path, job: object, monkeypatch: Any) -> None:
    (place / "slurm.json").write_text(json.dumps({"job": job}))
    monkeypatch.setattr(slurm, "_ask", lambda command: pytest.fail(f"asked {command}"))
    with pytest.raises(BadFile, match="it holds no job number"):
        slurm.active_job(place)


def test_a_path_with_a_line_break_is_not_written_into_a_slurm_script(place: Path) -> None:
    with pytest.raises(UsageError, match="has characters that Slurm cannot take"):
        slurm.script(place / "a\ntouch PWNED\n#", [0], 1, [])


@pytest.mark.parametrize(
    "name", ["sweep.json", "lock", "study.db", "logs", "compare.html", "-x", ".hidden", "a/b", ".."]
)
def test_a_run_has_no_name_that_rlplug_uses_itself(rlplug: Callable[..., Done], place: Path, name: str) -> None:
    done = rlplug("run", "a2c", "CartPole-v1", f"--name={name}", *FEW)
    assert (done.code, done.err.startswith(f"rlplug: --name {name}: ")) == (2, True), done.err


def on_a_terminal(fork: Callable[..., Fork], words: list[str], answer: str) -> tuple[int, str]:
    """Give a command a terminal, and answer the question that it asks: its exit code, and what it said."""
    user, terminal = pty.openpty()
    process = fork(*words, stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    said = ""
    with contextlib.suppress(OSError):  # so Linux ends what is read from a terminal that nobody has any more
        while part := os.read(user, 65536):
            said += part.decode(errors="replace")
            if said.rstrip().endswith("[y/N]:") and answer:
                os.write(user, f"{answer}\n".encode())
                answer = ""
    os.close(user)
    return process.wait(), said
