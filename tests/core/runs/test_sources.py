"""A run keeps copies of the files it names; later edits do not change it."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import pytest

from rlplug_core.errors import MissingPackage, PluginError, Untrusted, UsageError
from rlplug_core.runs.api import Run, load, open_run, resume, train
from rlplug_core.runs.directory import RunDirectory
from tests.core.fakes import ENVS, assert_same
from tests.core.runs.final import final_weights
from tests.waiting import without_notices

CHAIN = f"{ENVS}:Chain"
OPTIONS: dict[str, Any] = {
    "num_envs": 2, "total_timesteps": 80, "eval_episodes": 2, "eval_every": 40, "final_eval_episodes": 0,
    "runner": "sync",
}  # fmt: skip
MINE = "from tests.core.fakes import Tiny\nfrom rlplug_core.testing.envs import Chain\nclass Mine(Tiny): ...\n"


def write(folder: Path, text: str = MINE, name: str = "mine.py") -> str:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return f"{folder / name}:Mine"


def train_run(out: Path, algorithm: str, env: str = CHAIN, **options: Any) -> Run:
    return train(algorithm, env, {**OPTIONS, **options}, out=out, name="run", hooks=False)


def test_run_keeps_copy_and_hash_of_its_file(tmp_path: Path) -> None:
    run = train_run(tmp_path / "runs", write(tmp_path))
    source = run.config["sources"]["algorithm"]
    assert source["file"] == str(tmp_path / "mine.py")
    assert source["sha256"] == hashlib.sha256(MINE.encode()).hexdigest()
    assert (run.path / source["copy"]).read_text() == MINE
    assert (run.path / source["copy"]).parent.name == "sources"


def test_installed_sources_are_not_copied(tmp_path: Path) -> None:
    run = train_run(tmp_path / "runs", "tests.core.fakes:Tiny")
    assert run.config["sources"] == {}
    assert not (run.path / "sources").exists()


def test_later_edit_does_not_change_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = []
    for name in ("same", "edited"):
        target = write(tmp_path / name)
        runs.append(train_run(tmp_path / name / "runs", target))
        if name == "edited":
            write(tmp_path / name, "raise SystemExit('edited')\n")
        resume(runs[-1], total_timesteps=160, hooks=False)
    assert_same(final_weights(runs[0]), final_weights(runs[1]))
    message = capsys.readouterr().err
    assert message == (
        f"rlplug: {tmp_path}/edited/mine.py has changed since the run started; this uses the run's copy, "
        f"{runs[1].path / runs[1].config['sources']['algorithm']['copy']}\n"
    )
    assert runs[1].evaluate(episodes=2).episodes == 2
    assert load(runs[1]) is not None
    assert capsys.readouterr().err.count("mine.py has changed since the run started") == 2


def test_missing_neighbor_module_names_its_old_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = write(tmp_path / "project", f"import neighbor_of_mine\n{MINE}")
    (tmp_path / "project" / "neighbor_of_mine.py").touch()
    train_run(tmp_path / "project" / "runs", target)
    moved = (tmp_path / "project").rename(tmp_path / "moved")
    monkeypatch.delitem(sys.modules, "neighbor_of_mine")
    with pytest.raises(MissingPackage) as caught:
        load(moved / "runs" / "run")
    copy = next((moved / "runs" / "run" / "sources").glob("mine-*.py"))
    message = str(caught.value)
    assert message.startswith(f"'{copy}:Mine' needs the module 'neighbor_of_mine', which is not installed (looked in ")
    assert f"{tmp_path}/project, which is gone; {copy.parent}); install it, or say where it is: PYTHONPATH=" in message
    monkeypatch.syspath_prepend(moved)
    assert load(moved / "runs" / "run") is not None


def test_run_does_not_need_the_original_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train_run(tmp_path / "runs", write(tmp_path))
    (tmp_path / "mine.py").unlink()
    run.path.rename(tmp_path / "elsewhere")
    assert resume(tmp_path / "elsewhere", total_timesteps=160, hooks=False).status == "finished"
    assert without_notices(capsys.readouterr().err) == ""


def test_edited_copy_needs_trust(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train_run(tmp_path / "runs", write(tmp_path))
    copy = run.path / run.config["sources"]["algorithm"]["copy"]
    copy.write_text(f"{MINE}# repaired\n", encoding="utf-8")
    with pytest.raises(Untrusted, match=rf"would execute {copy} \(algorithm\), which has changed since .*--trust"):
        run.evaluate(episodes=2)
    open_run(run.path, trust=True).evaluate(episodes=2)
    assert (
        capsys.readouterr().err
        == f"rlplug: {copy} has changed since the run started; this will not give the same bits\n"
    )


def test_workers_of_resumed_run_use_the_copy(tmp_path: Path) -> None:
    run = train_run(tmp_path / "runs", write(tmp_path), runner="async", workers=2)
    write(tmp_path, "raise SystemExit('edited')\n")
    assert resume(run, total_timesteps=160, hooks=False).status == "finished"


def test_copies_environment_file_once(tmp_path: Path) -> None:
    target = write(tmp_path)
    run = train_run(tmp_path / "runs", target, target.replace(":Mine", ":Chain"))
    sources = run.config["sources"]
    assert sources["algorithm"] == sources["env"]
    assert len(list((run.path / "sources").iterdir())) == 1
    write(tmp_path, "raise SystemExit('edited')\n")
    assert run.evaluate(episodes=2).episodes == 2


def test_copies_wrappers(tmp_path: Path) -> None:
    code = "from rlplug_core import Transform as Mine\n"
    tiny = "tests.core.fakes:Tiny"
    tenfold = "tests.core.wraps:Tenfold"
    run = train_run(tmp_path / "runs", tiny, wrap=[tenfold, write(tmp_path, code, "wrap.py")])
    assert list(run.config["sources"]) == ["wrap.1"]
    (tmp_path / "wrap.py").unlink()
    assert run.evaluate(episodes=2).episodes == 2
    assert resume(run, total_timesteps=160, hooks=False).status == "finished"
    other = train_run(tmp_path / "other", tiny, wrap=[tenfold, write(tmp_path, code)])
    assert other.config["group"] == run.config["group"]


NET = """
from torch import nn
def make(space, net):
    return nn.Sequential(nn.Flatten(), nn.Linear(space.shape[0], 4), nn.Tanh()), 4
"""


def network(folder: Path, text: str = NET) -> str:
    return write(folder, text, "my_net.py").replace(":Mine", ":make")


@pytest.mark.parametrize("runner", [{}, {"runner": "async", "workers": 2}])
def test_copies_network_factory(tmp_path: Path, runner: dict[str, Any]) -> None:
    options = {"net.factory": network(tmp_path), "workers": 2, **runner}
    run = train_run(tmp_path / "runs", "tests.core.fakes:Tiny", **options)
    source = run.config["sources"]["net.factory"]
    assert list(run.config["sources"]) == ["net.factory"]
    assert source["sha256"] == hashlib.sha256(NET.encode()).hexdigest()
    assert (run.path / source["copy"]).read_text() == NET
    (tmp_path / "my_net.py").write_text("raise SystemExit('edited')\n", encoding="utf-8")
    assert run.evaluate(episodes=2).episodes == 2
    assert load(run) is not None
    assert resume(run, total_timesteps=160, hooks=False).status == "finished"
    (tmp_path / "my_net.py").unlink()
    run.path.rename(tmp_path / "elsewhere")
    assert resume(tmp_path / "elsewhere", total_timesteps=240, hooks=False).status == "finished"
    assert final_weights(Run(RunDirectory.open(tmp_path / "elsewhere")))["policy.encoder.1.weight"].shape == (4, 5)


def test_records_absolute_path_of_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network(tmp_path)
    monkeypatch.chdir(tmp_path)
    run = train_run(tmp_path / "runs", "tests.core.fakes:Tiny", **{"net.factory": "./my_net.py:make"})
    assert run.config["options"]["net.factory"] == f"{tmp_path}/my_net.py:make"


def test_network_error_leaves_no_run(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="turns 2 observations into"):
        train_run(tmp_path / "runs", "tests.core.fakes:Tiny", **{"net.factory": network(tmp_path, NET[:-3] + "5\n")})
    assert not (tmp_path / "runs").exists()


def test_copies_both_files_of_one_name(tmp_path: Path) -> None:
    env = write(tmp_path / "envs", f"{MINE}# another file\n").replace(":Mine", ":Chain")
    run = train_run(tmp_path / "runs", write(tmp_path), env)
    assert len(list((run.path / "sources").iterdir())) == 2


def test_group_depends_on_content_of_files(tmp_path: Path) -> None:
    algorithms, networks = [], []
    for name, comment in (("first", ""), ("same", ""), ("edited", "# edited\n")):
        folder = tmp_path / name
        algorithms.append(train_run(folder / "algorithm", write(folder, MINE + comment)).config["group"])
        options = {"net.factory": network(folder, NET + comment)}
        networks.append(train_run(folder / "network", "tests.core.fakes:Tiny", **options).config["group"])
    assert algorithms[0] == algorithms[1] != algorithms[2]
    assert networks[0] == networks[1] != networks[2]


LOGGER = """from rlplug_core import hookimpl

class Log:
    @hookimpl
    def rlplug_run_end(self, run, status):
        with (run.path / "ends.txt").open("a") as file:
            file.write(status + "\\n")

class Silent: ...

class Failing:
    def __init__(self):
        raise ValueError("no room")
"""


@pytest.mark.usefixtures("no_mlflow")
def test_resume_uses_copy_of_logger_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, LOGGER, "logger.py")
    monkeypatch.chdir(tmp_path)
    run = train("tests.core.fakes:Tiny", CHAIN, {**OPTIONS, "log": ("./logger.py:Log",)}, out=tmp_path, name="run")
    assert run.options["log"] == [f"{tmp_path / 'logger.py'}:Log"]
    assert run.config["sources"]["log.0"]["file"] == str(tmp_path / "logger.py")
    (tmp_path / "logger.py").unlink()
    resume(run, total_timesteps=160)
    assert (run.path / "ends.txt").read_text() == "finished\nfinished\n"


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        (
            "Silent",
            UsageError,
            "implements no hook; give it methods such as rlplug_run_log that are marked @rlplug_core",
        ),
        ("Failing", PluginError, "cannot be made: ValueError: no room; --traceback shows where"),
        ("Lag", PluginError, "has no 'Lag'; did you mean 'Log'"),
    ],
)
def test_invalid_logger_leaves_no_run(tmp_path: Path, name: str, error: type[Exception], message: str) -> None:
    target = write(tmp_path, LOGGER, "logger.py").replace("Mine", name)
    with pytest.raises(error, match=message):
        train("tests.core.fakes:Tiny", CHAIN, {**OPTIONS, "log": (target,)}, out=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
