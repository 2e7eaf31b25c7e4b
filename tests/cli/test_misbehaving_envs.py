"""Environments that raise unusual errors, close stdout or change the working directory, and damaged run files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import Result
from tests.cli.test_hostile import FEW, cartpole_with

SILENT = "type('Silent', (Exception,), {'__str__': lambda self: 1 / 0})()"
#: The error that an environment raises in a step, and the message for the user.
RAISED = {
    "silent": (SILENT, "the run failed: Silent: its message cannot be shown (silent.py:9, in step)"),
    "exits": ("GeneratorExit('bye')", "a wrapper raised GeneratorExit: bye (exits.py:9, in step), which is not an"),
    "base": ("BaseException('own')", "a wrapper raised BaseException: own (base.py:9, in step), which is not an"),
}


def test_error_in_a_step_prints_one_sentence(rlplug: Callable[..., Result], place: Path) -> None:
    wrong = []
    for name, (error, sentence) in RAISED.items():
        env = cartpole_with(place, name, f"raise {error}")
        result = rlplug("run", "a2c", env, *FEW, "--name", name, "--quiet")
        end = json.loads((place / f"runs/{name}/journal.jsonl").read_text().splitlines()[-1])["data"]
        if result.code != 1 or sentence not in result.err or "Traceback" in result.err or end != {"status": "failed"}:
            wrong.append(f"{name}: {result.code} {end} {result.err}")
    assert wrong == []


def test_error_in_a_constructor_prints_one_sentence(rlplug: Callable[..., Result], place: Path) -> None:
    (place / "born.py").write_text("class Env:\n    def __init__(self):\n        raise GeneratorExit('early')\n")
    result = rlplug("run", "a2c", "./born.py:Env", *FEW)
    assert result.code == 3
    assert "born.py:Env' cannot be made: GeneratorExit: early" in result.err


def test_system_error_names_the_resume_command(rlplug: Callable[..., Result], place: Path) -> None:
    env = cartpole_with(place, "disk", "raise OSError(116, 'Stale file handle')")
    result = rlplug("run", "a2c", env, *FEW, "--name", "disk", "--quiet")
    path = place / "runs" / "disk"
    assert f"check that its file server runs, then continue with 'rlplug resume {path}'" in result.err


def test_report_is_printed_if_an_environment_closes_stdout(process: Callable[..., Result], place: Path) -> None:
    env = cartpole_with(place, "shut", "sys.stdout.close()")
    result = process("run", "a2c", env, "--total-timesteps", "2000", *FEW[2:], "--name", "shut", "--quiet")
    assert (result.code, result.out) == (0, "run      runs/shut\n")


def test_change_of_directory_by_an_environment_does_not_move_the_run(
    with_store: str, process: Callable[..., Result], place: Path
) -> None:
    (place / "elsewhere").mkdir()
    (place / "moves.py").write_text(
        "import os\nfrom gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Env(CartPoleEnv):\n    def __init__(self):\n        super().__init__()\n"
        f"        os.chdir({str(place / 'elsewhere')!r})\n"
    )
    slow = {"RLPLUG_MLFLOW_DRAIN_SECONDS": "200"}  # a slow machine must not fail the test
    result = process("run", "a2c", "./moves.py:Env", *FEW[:-2], "--name", "moved", "--quiet", **slow)
    assert result.code == 0, result.err
    assert list((place / "elsewhere").iterdir()) == []
    assert (place / "runs/moved/config.json").exists()
    assert json.loads((place / "runs/moved/mlflow.json").read_text())["cursor"] > 1


def test_export_of_an_unreadable_run_says_why(rlplug: Callable[..., Result], place: Path) -> None:
    assert rlplug("run", "a2c", "CartPole-v1", *FEW, "--name", "one", "--quiet").code == 0
    (place / "runs/one/lock").unlink()
    (place / "runs/one/lock").symlink_to("nowhere")
    result = rlplug("export", "one")
    assert (result.code, "runs/one/lock cannot be used: it is not a regular file" in result.err) == (1, True)


def test_run_without_a_best_checkpoint_is_not_called_damaged(rlplug: Callable[..., Result], place: Path) -> None:
    """It has not been evaluated yet."""
    assert rlplug("run", "a2c", "CartPole-v1", *FEW, "--name", "one", "--quiet").code == 0
    for best in (place / "runs/one/checkpoints").glob("best-*"):
        best.rename(place / best.name)
    for command in ("evaluate", "export"):
        result = rlplug(command, "one", "--checkpoint", "best")
        assert result.code == 1
        assert "holds no best checkpoint yet; try again later, or name another one: --checkpoint latest" in result.err


def test_half_a_surrogate_pair_in_a_config_prints_one_sentence(rlplug: Callable[..., Result], place: Path) -> None:
    assert rlplug("run", "a2c", "CartPole-v1", *FEW, "--name", "one", "--quiet").code == 0
    path = place / "runs/one/config.json"
    config = json.loads(path.read_bytes())
    config["options"]["net.gain"] = "\ud800"
    path.write_text(json.dumps(config))
    for words in (("evaluate", "one"), ("export", "one"), ("show", "one")):
        result = rlplug(*words)
        assert (result.code, "config.json cannot be used: it is not JSON" in result.err) == (1, True), result.err


def test_compare_escapes_invalid_utf8_and_formulas_in_names(rlplug: Callable[..., Result], place: Path) -> None:
    assert rlplug("run", "a2c", "CartPole-v1", *FEW, "--name", "one", "--quiet").code == 0
    path = place / "runs/one/config.json"
    config = json.loads(path.read_bytes())
    path.write_text(json.dumps({**config, "env": "a\udc80$\\frac$"}))
    result = rlplug("compare", "one", "--html", "page.html", "--image", "curves.png")
    assert (result.code, result.err) == (0, "")
    assert (place / "page.html").exists()
    assert (place / "curves.png").exists()
    path.write_text(json.dumps({**config, "env": "+cmd|calc!A1"}))
    result = rlplug("compare", "one", "--csv", "-")
    assert "\n'+cmd|calc!A1,a2c," in result.out, result.out


def test_number_instead_of_a_list_prints_one_sentence(rlplug: Callable[..., Result], place: Path) -> None:
    assert rlplug("run", "a2c", "CartPole-v1", *FEW, "--name", "one", "--quiet").code == 0
    path = place / "runs/one/config.json"
    config = json.loads(path.read_bytes())
    wrong = []
    for name in ("wrap", "eval_wrap", "controller", "log", "init_parts", "freeze"):
        path.write_text(json.dumps({**config, "options": {**config["options"], name: -1}}))
        for command in ("export", "compare"):
            result = rlplug(command, "one")
            if result.code == 0 or "one/config.json cannot be used: Expected `array" not in result.err:
                wrong.append(f"{name}: {command}: {result.err}")
    assert wrong == []
