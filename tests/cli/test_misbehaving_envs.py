"""Environments that raise what nobody expects, close stdout or change the working directory: one sentence, no loss."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import Done
from tests.cli.test_hostile import FEW, spoiled

SILENT = "type('Silent', (Exception,), {'__str__': lambda self: 1 / 0})()"
#: What an environment raises in a step, and what the user reads.
RAISED = {
    "silent": (SILENT, "the run failed: Silent: its message cannot be shown (silent.py:9, in step)"),
    "exits": ("GeneratorExit('bye')", "a wrapper raised GeneratorExit: bye (exits.py:9, in step), which is not an"),
    "base": ("BaseException('own')", "a wrapper raised BaseException: own (base.py:9, in step), which is not an"),
}


def test_whatever_an_environment_raises_is_one_sentence(rlplug: Callable[..., Done], place: Path) -> None:
    wrong = []
    for name, (error, sentence) in RAISED.items():
        env = spoiled(place, name, f"raise {error}")
        done = rlplug("run", "a2c", env, *FEW, "--name", name, "--quiet")
        end = json.loads((place / f"runs/{name}/journal.jsonl").read_text().splitlines()[-1])["data"]
        if done.code != 1 or sentence not in done.err or "Traceback" in done.err or end != {"status": "failed"}:
            wrong.append(f"{name}: {done.code} {end} {done.err}")
    assert wrong == []


def test_a_constructor_may_raise_anything(rlplug: Callable[..., Done], place: Path) -> None:
    (place / "born.py").write_text("class Env:\n    def __init__(self):\n        raise GeneratorExit('early')\n")
    done = rlplug("run", "a2c", "./born.py:Env", *FEW)
    assert done.code == 3
    assert "born.py:Env' cannot be made: GeneratorExit: early" in done.err


def test_an_error_of_the_system_names_the_command_that_continues(rlplug: Callable[..., Done], place: Path) -> None:
    env = spoiled(place, "disk", "raise OSError(116, 'Stale file handle')")
    done = rlplug("run", "a2c", env, *FEW, "--name", "disk", "--quiet")
    path = place / "runs" / "disk"
    assert f"see whether its file server is there, then continue with 'rlplug resume {path}'" in done.err


def test_an_environment_that_closes_stdout_does_not_take_the_report(process: Callable[..., Done], place: Path) -> None:
    env = spoiled(place, "shut", "sys.stdout.close()")
    done = process("run", "a2c", env, "--total-timesteps", "2000", *FEW[2:], "--name", "shut", "--quiet")
    assert (done.code, done.out) == (0, "run      runs/shut\n")


def test_an_environment_that_changes_the_directory_does_not_move_the_run(
    with_store: str, process: Callable[..., Done], place: Path
) -> None:
    (place / "elsewhere").mkdir()
    (place / "moves.py").write_text(
        "import os\nfrom gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Env(CartPoleEnv):\n    def __init__(self):\n        super().__init__()\n"
        f"        os.chdir({str(place / 'elsewhere')!r})\n"
    )
    slow = {"RLPLUG_MLFLOW_DRAIN_SECONDS": "200"}  # a slow machine must not fail the test
    done = process("run", "a2c", "./moves.py:Env", *FEW[:-2], "--name", "moved", "--quiet", **slow)
    assert done.code == 0, done.err
    assert list((place / "elsewhere").iterdir()) == []
    assert (place / "runs/moved/config.json").exists()
    assert json.loads((place / "runs/moved/mlflow.json").read_text())["cursor"] > 1


def test_an_export_of_an_unreadable_run_says_why(rlplug: Callable[..., Done], place: Path) -> None:
    assert rlplug("run", "a2c", "CartPole-v1", *FEW, "--name", "one", "--quiet").code == 0
    (place / "runs/one/lock").unlink()
    (place / "runs/one/lock").symlink_to("nowhere")
    done = rlplug("export", "one")
    assert (done.code, "runs/one/lock cannot be used: it is not a regular file" in done.err) == (1, True)


def test_a_run_without_a_best_checkpoint_yet_says_when_there_is_one(rlplug: Callable[..., Done], place: Path) -> None:
    """A run that has not evaluated yet is not called damaged."""
    assert rlplug("run", "a2c", "CartPole-v1", *FEW, "--name", "one", "--quiet").code == 0
    for best in (place / "runs/one/checkpoints").glob("best-*"):
        best.rename(place / best.name)
    for command in ("evaluate", "export"):
        done = rlplug(command, "one", "--checkpoint", "best")
        assert done.code == 1
        assert "holds no best checkpoint yet; try again later, or name another one: --checkpoint latest" in done.err


def test_half_a_surrogate_pair_in_a_record_is_one_sentence(rlplug: Callable[..., Done], place: Path) -> None:
    assert rlplug("run", "a2c", "CartPole-v1", *FEW, "--name", "one", "--quiet").code == 0
    path = place / "runs/one/config.json"
    config = json.loads(path.read_bytes())
    config["options"]["net.gain"] = "\ud800"
    path.write_text(json.dumps(config))
    for words in (("evaluate", "one"), ("export", "one"), ("show", "one")):
        done = rlplug(*words)
        assert (done.code, "config.json cannot be used: it is not JSON" in done.err) == (1, True), done.err


def test_names_that_are_no_utf8_or_look_like_a_formula_harm_no_picture_and_no_spreadsheet(
    rlplug: Callable[..., Done], place: Path
) -> None:
    assert rlplug("run", "a2c", "CartPole-v1", *FEW, "--name", "one", "--quiet").code == 0
    path = place / "runs/one/config.json"
    config = json.loads(path.read_bytes())
    path.write_text(json.dumps({**config, "env": "a\udc80$\\frac$"}))
    done = rlplug("compare", "one", "--html", "page.html", "--image", "curves.png")
    assert (done.code, done.err) == (0, "")
    assert (place / "page.html").exists()
    assert (place / "curves.png").exists()
    path.write_text(json.dumps({**config, "env": "+cmd|calc!A1"}))
    done = rlplug("compare", "one", "--csv", "-")
    assert "\n'+cmd|calc!A1,a2c," in done.out, done.out


def test_a_number_where_a_list_of_names_belongs_is_one_sentence(rlplug: Callable[..., Done], place: Path) -> None:
    assert rlplug("run", "a2c", "CartPole-v1", *FEW, "--name", "one", "--quiet").code == 0
    path = place / "runs/one/config.json"
    config = json.loads(path.read_bytes())
    wrong = []
    for name in ("wrap", "eval_wrap", "controller", "log", "init_parts", "freeze"):
        path.write_text(json.dumps({**config, "options": {**config["options"], name: -1}}))
        for command in ("export", "compare"):
            done = rlplug(command, "one")
            if done.code == 0 or "one/config.json cannot be used: Expected `array" not in done.err:
                wrong.append(f"{name}: {command}: {done.err}")
    assert wrong == []
