"""Hostile files, plugins that kill the process, and text with escape codes; `tests/faults` has more hostile files."""

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
from tests.cli.conftest import Result
from tests.cli.warm import Fork
from tests.faults.hostile import World, call_main, indexes, sentences, tomls

RED = "\x1b[31mred\x1b]0;title\x07"
A2C = "from rlplug_algos.policy_gradient.a2c import A2C as Algo"
FEW = ("--total-timesteps", "400", "--eval-episodes", "1", "--final-eval-episodes", "0", "-P", "no:mlflow")


def package(place: Path, name: str, code: str) -> dict[str, str]:
    """Write an installed plugin, and return the environment variables with which a process finds it."""
    (place / "site" / name).mkdir(parents=True)
    (place / "site" / name / "__init__.py").write_text("")
    (place / "site" / name / "algo.py").write_text(code)
    about = place / "site" / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: rlplug-core\n")
    (about / "entry_points.txt").write_text(f"[rlplug.algorithms]\n{name} = {name}.algo:Algo\n")
    return {"PYTHONPATH": str(place / "site")}


def cartpole_with(place: Path, name: str, env_code: str) -> str:
    """Write an environment file: CartPole with a line that runs at step 1,500."""
    (place / f"{name}.py").write_text(
        "import os, sys\nimport gymnasium\nfrom gymnasium.envs.classic_control import CartPoleEnv\nsteps = []\n"
        "class Env(CartPoleEnv):\n    def step(self, action):\n        steps.append(1)\n"
        f"        if len(steps) == 1500:\n            {env_code}\n        return super().step(action)\n"
    )
    return f"./{name}.py:Env"


def test_some_hostile_files(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tests/faults` has more than a thousand."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    world = World(place)
    cases = [case for case in world.cases(random.Random(2)) if case.commands[0][0] != "sync"]
    wrong = [sentence for case in cases[::60] for sentence in world.find_errors(case)]
    assert not wrong, "\n".join(wrong)


def test_damaged_index_does_not_break_list(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(place, "spoilt", A2C)
    monkeypatch.syspath_prepend(place / "site")
    code, _, errors = call_main(["index", "spoilt"])
    assert code == 0, errors
    path = place / "site" / "spoilt" / "index" / "spoilt.json"
    words = ["list"]
    for name, content in [*indexes(random.Random(3), plugins.find("algorithms", "spoilt"))][::3]:
        path.write_bytes(content)
        code, message, errors = call_main(words)
        assert not [*sentences(words, code, message, errors)], name
        assert "\nppo " in message, name
        assert "\nspoilt " in message, name


def test_damaged_option_file_prints_one_sentence(place: Path) -> None:
    for name, content in tomls(random.Random(4)):
        (place / "options.toml").write_bytes(content)
        words = ["run", "a2c", "CartPole-v1", "--config", "options.toml", "--print-config"]
        code, message, errors = call_main(words)
        assert not [*sentences(words, code, message, errors)], name


@pytest.mark.parametrize(
    "code", ["import os; os._exit(0)", "import os; os.kill(os.getpid(), 11)"], ids=["exit", "segv"]
)
def test_plugin_that_kills_the_process_at_import_is_named(
    place: Path, new_process: Callable[..., Result], code: str
) -> None:
    result = new_process("run", "deadly", "CartPole-v1", **package(place, "deadly", f"import os; {code}"))
    assert "rlplug: the process died while algorithm 'deadly' of deadly 1.0 was imported" in result.err
    assert "switch it off with -P no:deadly" in result.err


def test_successful_import_prints_nothing(place: Path, new_process: Callable[..., Result]) -> None:
    result = new_process("run", "fine", "CartPole-v1", "--help", **package(place, "fine", A2C))
    assert (result.code, result.err) == (0, "")


@pytest.mark.parametrize("code", [0, 3])
def test_sys_exit_in_an_environment_fails_the_run(rlplug: Callable[..., Result], place: Path, code: int) -> None:
    env = cartpole_with(place, "leaving", f"sys.exit({code})")
    result = rlplug("run", "a2c", env, *FEW, "--name", "left", "--quiet")
    assert result.code == 1
    assert f"called sys.exit({code}) while it trained" in result.err
    assert json.loads((place / "runs/left/journal.jsonl").read_text().splitlines()[-1])["data"]["status"] == "failed"


def test_output_of_an_environment_does_not_mix_with_json(place: Path, process: Callable[..., Result]) -> None:
    env = cartpole_with(place, "loud", "print('py'); os.system('echo child'); os.write(1, b'raw')")
    result = process("run", "a2c", env, *FEW, "--json", "--name", "loud")
    assert json.loads(result.out)["status"] == "finished"
    for noise in ("py\n", "child\n", "raw"):
        assert noise in result.err


def test_stdout_to_stderr_restores_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    with stdout_to_stderr() as stdout:
        print("noise")  # noqa: T201
        print("data", file=stdout)
    print("after", flush=True)  # noqa: T201
    assert capfd.readouterr().out == "data\nafter\n"


def test_escape_codes_of_an_environment_are_removed(rlplug: Callable[..., Result], place: Path) -> None:
    result = rlplug(
        "run", "a2c", cartpole_with(place, "rude", f"raise ValueError({RED!r})"), *FEW, "--name", "rude", "--quiet"
    )
    assert result.code == 1
    assert "[31mred" in result.err
    assert "\x1b" not in result.err + result.out
    assert "\x1b" not in (place / "runs/rude/error.txt").read_text()


def test_name_must_have_printable_characters(rlplug: Callable[..., Result], place: Path) -> None:
    result = rlplug("run", "a2c", "CartPole-v1", "--name", f"a{RED}b")
    assert (result.code, result.out) == (2, "")
    assert "use printable characters only" in result.err
    assert "\x1b" not in result.err
    assert not (place / "runs").exists()


def test_foreign_run_needs_trust(rlplug: Callable[..., Result], place: Path) -> None:
    env = cartpole_with(place, "own", "pass")
    assert rlplug("run", "a2c", env, *FEW, "--name", "one").code == 0
    assert rlplug("evaluate", "one", "--episodes", "1").code == 0
    config = json.loads((place / "runs/one/config.json").read_text())
    (place / "runs/one/config.json").write_text(json.dumps({**config, "seal": ""}))
    for words in (["evaluate", "one", "--episodes", "1"], ["resume", "one"], ["export", "one"], ["reproduce", "one"]):
        result = rlplug(*words)
        assert result.code == 2, words
        assert "sources/own-" in result.err
        assert result.err.endswith(
            "which this account did not write here; read it, then add --trust (trust=True in Python)\n"
        )
    assert rlplug("evaluate", "one", "--episodes", "1", "--trust").code == 0


@pytest.mark.parametrize(("answer", "code", "executed"), [("y", 0, True), ("n", 2, False)])
def test_terminal_asks_before_executing_foreign_code(
    rlplug: Callable[..., Result], fork: Callable[..., Fork], place: Path, answer: str, code: int, executed: bool
) -> None:
    env = cartpole_with(place, "own", "pass")
    assert rlplug("run", "a2c", env, *FEW, "--name", "one").code == 0
    config = json.loads((place / "runs/one/config.json").read_text())
    (place / "runs/one/config.json").write_text(json.dumps({**config, "seal": ""}))
    (source,) = (place / "runs/one/sources").glob("own-*.py")
    (place / "runs/one/sources" / source.name).write_text(f"open('executed', 'w').close()\n{source.read_text()}")
    exit_code, output = run_on_terminal(fork, ["evaluate", "one", "--episodes", "1"], answer)
    assert re.search(r"this would execute .*own-.*; continue\? \[y/N\]", output), output
    assert (exit_code, (place / "executed").exists()) == (code, executed), output


GOOD_TASK = {"name": "a2c-CartPole-v1-s1", "algorithm": "a2c", "env": "CartPole-v1", "seed": 1, "words": []}
GOOD_SWEEP = {"format": 1, "kind": "sweep", "uid": "x", "created": 1.0, "files": {}, "tasks": [GOOD_TASK]}
SWEEP = ("sweep", "a2c", "CartPole-v1", "--seeds", "1", *FEW, "--name", "sw")
#: Values that no field may have: paths, options, control characters, other types.
HOSTILE = ("../../victim/docs", "/etc", "..", ".", "", "a/b", "--traceback", "a\nb", "sweep.json", "logs", None, [], {})


def make_victim(place: Path) -> Path:
    """Write a file outside the runs, which no command may change."""
    (place / "victim" / "docs").mkdir(parents=True)
    (place / "victim" / "docs" / "a").write_text("precious")
    return place / "victim" / "docs" / "a"


def is_unchanged(path: Path) -> bool:
    return path.read_text() == "precious" and sorted(p.name for p in path.parent.iterdir()) == ["a"]


@pytest.mark.parametrize("sealed_here", [False, True])
@pytest.mark.parametrize("field", [*GOOD_TASK, *GOOD_SWEEP])
def test_hostile_sweep_file_starts_no_run(
    rlplug: Callable[..., Result], place: Path, field: str, sealed_here: bool
) -> None:
    precious = make_victim(place)
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
        result = rlplug(*SWEEP)
        assert result.code in (1, 2), (field, value, result.err)
        assert result.err.startswith("rlplug: runs/sw/"), (field, value, result.err)
        assert result.err.count("\n") == 1, result.err
        assert is_unchanged(precious)
        assert not [*(place / "runs" / "sw").glob("*/config.json")]


def test_foreign_sweep_file_may_list_only_the_typed_runs(rlplug: Callable[..., Result], place: Path) -> None:
    (place / "runs" / "sw").mkdir(parents=True)
    path = place / "runs" / "sw" / "sweep.json"
    path.write_text(json.dumps({**GOOD_SWEEP, "seal": "0"}))
    result = rlplug(*SWEEP)
    assert (result.code, "lists runs that this account did not start" in result.err) == (2, True), result.err
    path.write_text(json.dumps({**GOOD_SWEEP, "seal": "0", "tasks": [{**GOOD_TASK, "words": FEW[:6]}]}))
    result = rlplug(*SWEEP)
    assert result.code == 0, result.err


@pytest.mark.parametrize(
    "name",
    [
        *("compare.html", "logs", "a2c-CartPole-v1-s1", "sweep.json", "lock", ".sweep.json.tmp"),
        pytest.param(".compare.html.tmp", marks=pytest.mark.slow),  # written like the file before it
    ],
)
def test_sweep_does_not_follow_links(rlplug: Callable[..., Result], place: Path, name: str) -> None:
    precious = make_victim(place)
    (place / "runs" / "sw").mkdir(parents=True)
    for target in (precious, precious.parent):
        link = place / "runs" / "sw" / name
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        rlplug(*SWEEP)
        assert is_unchanged(precious), target
        assert (place / "victim").iterdir()


@pytest.mark.parametrize(
    "name",
    [
        *("study.db", "history.png", "trial-0000-s1", "logs", "sweep.json"),
        pytest.param("importance.png", marks=pytest.mark.slow),  # written like the file before it
    ],
)
def test_study_does_not_follow_links(rlplug: Callable[..., Result], place: Path, name: str) -> None:
    pytest.importorskip("optuna")
    precious = make_victim(place)
    (place / "runs" / "study").mkdir(parents=True)
    for target in (precious, precious.parent, place / "victim" / "new"):
        link = place / "runs" / "study" / name
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        rlplug("tune", "a2c", "CartPole-v1", "--trials", "1", *FEW, "--gamma", "0.9,0.99", "--name", "study")
        assert is_unchanged(precious), target
        assert not (place / "victim" / "new").exists()


def test_export_and_film_do_not_follow_links(rlplug: Callable[..., Result], place: Path) -> None:
    assert rlplug("run", "a2c", "CartPole-v1", *FEW, "--name", "one").code == 0
    (place / "empty").mkdir()
    (place / "runs" / "one" / "export").symlink_to(place / "empty")
    result = rlplug("export", "one")
    assert (result.code, "export is not a directory of its own" in result.err) == (2, True), result.err
    (place / "runs" / "one" / "videos").symlink_to(place / "empty")
    result = rlplug("play", "one", "--episodes", "1")
    assert (result.code, "it is not a directory of the run's own; delete it" in result.err) == (1, True), result.err
    assert not [*(place / "empty").iterdir()]


@pytest.mark.parametrize("name", ["slurm.sh", "slurm.json", "logs", "logs/0.txt"])
def test_slurm_script_does_not_follow_links(place: Path, name: str, monkeypatch: Any) -> None:
    precious = make_victim(place)
    directory = place / "runs" / "sw"
    (directory / name).parent.mkdir(parents=True)
    (directory / name).symlink_to(precious.parent if name == "logs" else precious)
    monkeypatch.setattr(slurm, "_run_slurm", lambda command: SimpleNamespace(returncode=0, stdout="77", stderr=""))
    with contextlib.suppress(UsageError, BadFile):
        slurm.submit(directory, [0], 1, [])
    assert is_unchanged(precious)


@pytest.mark.parametrize("job", ["--help", "1\n2", "", None, {}, [1]])
def test_invalid_job_number_is_refused(place: Path, job: object, monkeypatch: Any) -> None:
    (place / "slurm.json").write_text(json.dumps({"job": job}))
    monkeypatch.setattr(slurm, "_run_slurm", lambda command: pytest.fail(f"called {command}"))
    with pytest.raises(BadFile, match="it holds no job number"):
        slurm.active_job(place)


def test_slurm_script_refuses_a_path_with_a_line_break(place: Path) -> None:
    with pytest.raises(UsageError, match="has characters that Slurm cannot take"):
        slurm.script(place / "a\ntouch PWNED\n#", [0], 1, [])


@pytest.mark.parametrize(
    "name", ["sweep.json", "lock", "study.db", "logs", "compare.html", "-x", ".hidden", "a/b", ".."]
)
def test_reserved_run_names_are_refused(rlplug: Callable[..., Result], place: Path, name: str) -> None:
    result = rlplug("run", "a2c", "CartPole-v1", f"--name={name}", *FEW)
    assert (result.code, result.err.startswith(f"rlplug: --name {name}: ")) == (2, True), result.err


def run_on_terminal(fork: Callable[..., Fork], words: list[str], answer: str) -> tuple[int, str]:
    """Run a command on a terminal and answer its question; return its exit code and its output."""
    user, terminal = pty.openpty()
    process = fork(*words, stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    output = ""
    with contextlib.suppress(OSError):  # Linux raises it when the command has closed the terminal
        while part := os.read(user, 65536):
            output += part.decode(errors="replace")
            if output.rstrip().endswith("[y/N]:") and answer:
                os.write(user, f"{answer}\n".encode())
                answer = ""
    os.close(user)
    return process.wait(), output
