"""Bad input prints one clear sentence, exits with the right code, and writes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CASES = {
    "unknown algorithm": ("run a2cc CartPole-v1", 2, r"no algorithm 'a2cc' is installed; did you mean 'a2c'\?"),
    "unknown environment": ("run a2c CartPol-v1", 2, r"unknown environment 'CartPol-v1'; did you mean 'CartPole-v1'"),
    "unknown namespace": (
        "run a2c Foo/Bar-v0",
        2,
        r"'Foo/Bar-v0'.*no plugin has the namespace 'Foo' \(providers: brax, envpool, gymnasium, gymnax, "
        r"jumanji, pettingzoo, playground, tensor\)",
    ),
    "wrong space": ("run dqn Pendulum-v1", 2, r"DQN needs Discrete actions and Pendulum-v1 has Box"),
    "wrong type": (
        "run a2c CartPole-v1 --learning-rate fast",
        2,
        r"a2c: option '--learning-rate': expected a number or a schedule such as linear\(a,b\), got 'fast'",
    ),
    "wrong integer": ("run a2c CartPole-v1 --num-envs 1.5", 2, r"option '--num-envs': expected an integer, got '1.5'"),
    "out of range": (
        "run a2c CartPole-v1 --learning-rate 0",
        2,
        r"option '--learning-rate': expected a number above 0, got '0'",
    ),
    "below the range": ("run a2c CartPole-v1 --seed -1", 2, r"option '--seed': expected a number of at least 0"),
    "schedule without its bracket": (
        "run a2c CartPole-v1 --learning-rate cosine(1,2",
        2,
        r"option '--learning-rate': 'cosine\(1,2' is not a schedule",
    ),
    "above the range": ("run a2c CartPole-v1 --gamma 1.1", 2, r"option '--gamma': expected a number of at most 1"),
    "not a number": ("run a2c CartPole-v1 --learning-rate nan", 2, r"option '--learning-rate': expected a number"),
    "bad choice": (
        "run a2c CartPole-v1 --inference-backend jax",
        2,
        r"expected one of auto, numpy, torch, got 'jax'",
    ),
    "bad list": (
        "run a2c CartPole-v1 --net.hidden 64,x",
        2,
        r"'--net.hidden': expected numbers as in 64,64, got '64,x'",
    ),
    "not a schedule": (
        "run a2c CartPole-v1 --learning-rate linear(1e-3)",
        2,
        r"'--learning-rate': 'linear\(1e-3\)' is not a schedule; write constant",
    ),
    "a schedule out of range": ("run ppo CartPole-v1 --gamma linear(0.9,1.1)", 2, r"'--gamma': expected .* at most 1"),
    "a schedule for an integer": ("run a2c CartPole-v1 --n-steps linear(5,9)", 2, r"'--n-steps': expected an integer"),
    "unknown optimizer": ("run a2c CartPole-v1 --optimizer NAdma", 2, r"no optimizer 'NAdma'; did you mean 'NAdam'"),
    "option that the optimizer does not use": (
        "run a2c CartPole-v1 --optimizer sgd --optimizer-kwargs.alpha 0.9",
        2,
        r"'sgd' does not use 'optim",
    ),
    "set without value": ("run a2c CartPole-v1 --set gamma", 2, r"--set gamma: write --set name=value"),
    "set unknown": (
        "run a2c CartPole-v1 --set num_env=3",
        2,
        r"a2c has no option 'num_env'; did you mean 'num_envs'\?",
    ),
    "set wrong": ("run a2c CartPole-v1 --set anneal_lr=maybe", 2, r"'--anneal-lr': expected yes or no, got 'maybe'"),
    "no config file": ("run a2c CartPole-v1 --config no.toml", 2, r"no.toml cannot be read: No such file"),
    "option of other algorithms": (
        "run ppo CartPole-v1 --buffer-size 9",
        2,
        r"'--buffer-size'; a2c, .* more have it",
    ),
    "option of one other algorithm": ("run ppo CartPole-v1 --expectile 1", 2, r"'--expectile'; iql has it"),
    "unknown option": ("run a2c CartPole-v1 --num-env 3", 2, r"no such option '--num-env'.*--num-envs"),
    "option too early": (
        "run --seed 1 a2c CartPole-v1",
        2,
        r"put options after the algorithm: rlplug run ALGORITHM ENV --seed",
    ),
    "long name": (
        "evaluate " + "a" * 300,
        2,
        r"'a+…' is too long for a path; name an existing file or run",
    ),
    "too many environments": (
        "run a2c CartPole-v1 --num-envs 1e9",
        2,
        r"'--num-envs': 1,000,000,000 environments would take .* or more, and this",
    ),
    "no environment": ("run a2c", 2, r"missing argument 'ENV'"),
    "unknown command": ("runn a2c CartPole-v1", 2, r"no command 'runn'; did you mean 'run'"),
    "another library's command": ("train ppo CartPole-v1", 2, r"no command 'train'; did you mean 'run'"),
    "bad runner": (
        "run dqn CartPole-v1 --runner async",
        2,
        r"dqn does not run under 'async'.*use --runner sync",
    ),
    "no device": ("run a2c CartPole-v1 --device cuda:7", 2, r"device 'cuda' is not available"),
    "unwritable": ("run a2c CartPole-v1 --out /proc/none", 2, r"/proc/none.*cannot be written.*--out"),
    "path instead of a name": ("run a2c CartPole-v1 --name ../x", 2, r"--name ../x: use a name without ./. .*--out"),
    "no such run": ("resume nothing", 2, r"no run at nothing \('rlplug runs' lists"),
    "no such run to evaluate": ("evaluate nothing", 2, r"no run at nothing"),
    "no such run to send": ("sync nothing", 2, r"no run at nothing"),
    "no such file": ("run ./no.py:Algo CartPole-v1", 2, r"there is no file no.py"),
    "no such module": ("run no_such_module:Algo CartPole-v1", 2, r"there is no module 'no_such_module'"),
    "no such environment file": ("run a2c ./no.py:Env", 2, r"there is no file .*no.py"),
    "no store": ("ui", 2, r"there is no MLflow store at .*mlflow.db"),
    "no plugin to index": ("index rlplug-alogs", 2, r"no plugin 'rlplug-alogs'.*did you mean 'rlplug-algos'"),
    "package of an environment": (
        "run a2c phys2d/Pendulum-v0",
        3,
        r"needs .* pip install 'gymnasium\[jax\]'",
    ),
    "switched off": ("-P no:rlplug-algos run a2c CartPole-v1", 3, r"'a2c' of rlplug-algos .* is disabled"),
    "environments switched off": ("-Pno:gymnasium run a2c CartPole-v1", 3, r"provider 'gymnasium' .* is disabled"),
}


def assert_one_sentence(result: Any, code: int, pattern: str) -> None:
    assert result.code == code, result.err
    (line,) = result.err.splitlines()
    assert line.startswith("rlplug: ")
    assert re.search(pattern, line), line
    assert "Traceback" not in result.out + result.err


def test_mistake_prints_one_sentence_and_writes_nothing(
    rlplug: Callable[..., Any], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = []
    for name, (command, code, pattern) in CASES.items():
        monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "")  # option `-P` of an earlier command sets it
        result = rlplug(*command.split())
        lines = result.err.splitlines()
        sentence = len(lines) == 1 and lines[0].startswith("rlplug: ") and "Traceback" not in result.out
        if result.code != code or not sentence or not re.search(pattern, lines[0]):
            faults.append(f"{name}: code {result.code}: {result.err}")
        faults += [f"{name} wrote {path.name}" for path in place.iterdir() if path.name != "mlflow.db.lock"]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("lr = = 3", "bad.toml is not TOML"),
        ("[net]\nhiden = [3]", "no option 'net.hiden'; did you mean"),
        ("learning_rat = 1e-3", "bad.toml: a2c has no option 'learning_rat'; did you mean 'learning_rate'"),
        ('learning_rate = "fast"', "bad.toml: 'learning_rate': expected a number or .* linear.*, got 'fast'"),
        ('learning_rate = "linear(1,"', "bad.toml: 'learning_rate': 'linear\\(1,' is not a schedule"),
        ("net.hidden = 3", "bad.toml: 'net.hidden': expected numbers as in 64,64, got 3"),
    ],
)
def test_config_file_is_checked_even_if_options_override_it(
    rlplug: Callable[..., Any], place: Path, line: str, message: str
) -> None:
    (place / "bad.toml").write_text(line)
    words = ("run", "a2c", "CartPole-v1", "--config", "bad.toml", "--learning-rate", "1e-3", "--net.hidden", "8")
    assert_one_sentence(rlplug(*words), 2, message)


def test_existing_run_directory_is_refused(rlplug: Callable[..., Any], place: Path) -> None:
    (place / "runs" / "mine").mkdir(parents=True)
    (place / "runs" / "mine" / "notes.txt").touch()
    message = r"runs/mine exists already.*--name.*; it holds no run"
    assert_one_sentence(rlplug("run", "a2c", "CartPole-v1", "--name", "mine"), 2, message)


def test_damaged_store_warns_and_training_continues(
    process: Callable[..., Any], place: Path, short: tuple[str, ...]
) -> None:
    (place / "mlflow.db").write_bytes(b"SQLite format 3\0 but not really" * 100)
    result = process("run", "a2c", "CartPole-v1", *short, "--name", "mine", RLPLUG_MLFLOW_DRAIN_SECONDS="3600")
    assert result.code == 0, result.err  # it has not waited for a store that only its owner can repair
    assert re.search(r"mlflow.db cannot be read: .*; move it away.*; training continues", result.err)
    assert "'rlplug sync" in result.err
    assert "Traceback" not in result.err
    assert "final evaluation" in result.out


def test_traceback_option_prints_a_traceback(process: Callable[..., Any]) -> None:
    result = process("--traceback", "run", "a2cc", "CartPole-v1")
    assert result.code == 1
    assert "Traceback" in result.err
    assert "UsageError: no algorithm 'a2cc'" in result.err


def test_busy_port_is_refused(rlplug: Callable[..., Any], with_store: str) -> None:
    import socket

    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = str(busy.getsockname()[1])
        assert_one_sentence(rlplug("ui", "--port", port), 2, rf"port {port} cannot be used")


MINE = """
from dataclasses import dataclass
import rlplug_core as rl
from rlplug_algos.policy_gradient.ppo import PPO

@dataclass(frozen=True)
class Own(rl.Config):
    num_envs: int = 2  # rows

class Clash(PPO):
    Config = Own

class Broken(PPO):
    def learn(self, batch, now, clock):
        return batch["log_prob"]
"""


def test_algorithm_that_redefines_a_run_option_is_refused(rlplug: Callable[..., Any], place: Path) -> None:
    (place / "mine.py").write_text(MINE)
    for words in (("run", "./mine.py:Clash", "CartPole-v1"), ("run", "./mine.py:Clash", "--help")):
        result = rlplug(*words)
        assert result.code
        assert "redefines the run option 'num_envs'; its author must rename it" in result.err
        assert "UserWarning" not in result.err


def test_unexpected_errors_name_the_authors_file(
    rlplug: Callable[..., Any], place: Path, short: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    (place / "mine.py").write_text(MINE)
    result = rlplug("run", "./mine.py:Broken", "CartPole-v1", *short)
    assert result.code == 1
    assert "(mine.py:15, in learn)" in result.err


LATER = """
from pathlib import Path
from rlplug_algos.policy_gradient.ppo import PPO

class Later(PPO):
    def agent(self, rank=0, ranks=1):
        if Path("gone").exists():
            raise LookupError("no tables")
        return super().agent(rank, ranks)
"""


def test_error_says_whether_the_run_or_the_command_failed(
    rlplug: Callable[..., Any], place: Path, short: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    (place / "later.py").write_text(LATER)
    assert rlplug("run", "./later.py:Later", "CartPole-v1", "--name", "made", *short).code == 0
    (place / "gone").touch()
    evaluated = rlplug("evaluate", "runs/made")
    assert "rlplug: 'rlplug evaluate' failed: LookupError: no tables" in evaluated.err
    assert "the run failed: LookupError: no tables" in rlplug("run", "./later.py:Later", "CartPole-v1", *short).err
