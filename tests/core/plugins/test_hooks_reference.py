"""Every hook is documented with its exact signature, and called in a real run when its documentation says so."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import rlplug_core
from rlplug_core import plugins
from rlplug_core.errors import BadConfig, Interrupted
from rlplug_core.plugins.hooks import Hooks
from rlplug_core.runs.api import Run, resume, train
from rlplug_core.runs.journal import read
from rlplug_core.testing.distributions import write_distribution
from tests.core.fakes import ENVS, TINY
from tests.core.wraps import HERE as WRAPS
from tests.tables import for_each

PAGES = Path(__file__).parents[3] / "docs" / "plugins"

#: A module of hooks that appends every call to `rlplug_witness.calls`, and hands it to `rlplug_witness.react` if set.
WITNESS = """
import rlplug_witness
from rlplug_core.plugins.hook_specs import hookimpl

def told(name, **arguments):
    rlplug_witness.calls.append((name, arguments))
    if rlplug_witness.react:
        rlplug_witness.react(name, arguments)
"""


def reference() -> Any:
    """The script that writes the reference."""
    spec = importlib.util.spec_from_file_location("rlplug_docs_make", PAGES / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HOOKS = {function.name: [argument.arg for argument in function.args.args] for function in reference().specifications()}


class Witness:
    """What the hooks of an installed plugin were told."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.calls: list[tuple[str, dict[str, Any]]] = module.calls

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def of(self, hook: str) -> list[dict[str, Any]]:
        """The arguments of every call of one hook."""
        return [arguments for name, arguments in self.calls if name == hook]

    def react(self, hook: str, reaction: Callable[[dict[str, Any]], None]) -> None:
        """Do something in every call of one hook."""
        self.module.react = lambda name, arguments: reaction(arguments) if name == hook else None


@pytest.fixture
def witness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Witness]:
    """An installed plugin that implements every hook with all its arguments; no other hook is called."""
    code = WITNESS + "".join(
        f"\n@hookimpl\ndef {name}({', '.join(arguments)}):\n"
        f"    told({name!r}, {', '.join(f'{argument}={argument}' for argument in arguments)})\n"
        for name, arguments in HOOKS.items()
    )
    files = {"rlplug_witness/__init__.py": "calls = []\nreact = None\n", "rlplug_witness/hooks.py": code}
    points = {"rlplug.hooks": {"witness": "rlplug_witness.hooks"}}
    write_distribution(tmp_path / "site", "rlplug-witness", points, files)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    monkeypatch.chdir(tmp_path)
    plugins.refresh()
    module = importlib.import_module("rlplug_witness")
    yield Witness(module)
    monkeypatch.undo()
    plugins.refresh()
    for name in ("rlplug_witness", "rlplug_witness.hooks"):
        sys.modules.pop(name, None)


OPTIONS: dict[str, Any] = {
    "total_timesteps": 400,
    "eval_episodes": 2,
    "final_eval_episodes": 2,
    "checkpoint_every": 100,
}


def run(env: str = f"{ENVS}:Chain", **options: Any) -> Run:
    return train(TINY, env, {**OPTIONS, **options})


def recorded(run: Run, *kinds: str) -> list[Any]:
    return [record for record in read(run.journal) if record.kind in kinds]


def configure(witness: Witness) -> None:
    witness.react("rlplug_configure", lambda told: told["config"].update(total_timesteps=200))
    made = run()
    assert len(witness.of("rlplug_configure")) == 1
    assert witness.names[0] == "rlplug_configure"
    assert made.config["options"]["total_timesteps"] == 200


def run_start(witness: Witness) -> None:
    kinds: list[list[str]] = []
    witness.react("rlplug_run_start", lambda told: kinds.append([record.kind for record in read(told["run"].journal)]))
    made = run()
    resume(made, total_timesteps=600)
    first, second = witness.of("rlplug_run_start")
    assert first["run"].path == second["run"].path == made.path
    assert kinds[0] == ["start"]
    assert kinds[1][-1] == "start"
    assert len(witness.of("rlplug_configure")) == 1


def run_log(witness: Witness) -> None:
    made = run()
    told = [(call["step"], call["metrics"]) for call in witness.of("rlplug_run_log")]
    written = [(one.step, numbers(one.data)) for one in recorded(made, "metrics", "evaluation")]
    assert told == written
    assert len(told) > 4


def numbers(data: Mapping[str, Any]) -> dict[str, float]:
    return {key: value for key, value in data.items() if not isinstance(value, bool)}


def run_checkpoint(witness: Witness) -> None:
    durable: list[bool] = []
    witness.react("rlplug_run_checkpoint", lambda told: durable.append((told["path"] / "manifest.json").is_file()))
    made = run()
    calls = witness.of("rlplug_run_checkpoint")
    assert [(call["path"].name, call["reason"]) for call in calls] == [
        (one.data["name"], one.data["reason"]) for one in recorded(made, "checkpoint")
    ]
    assert {call["reason"] for call in calls} == {"begin", "periodic", "best", "final"}
    assert all(durable)


def episodes(witness: Witness) -> None:
    made = run()
    told = [(call["step"], {name: list(column) for name, column in call["episodes"].items()})
            for call in witness.of("rlplug_episodes")]  # fmt: skip
    assert told == [(one.step, one.data) for one in recorded(made, "episodes")]
    assert told


def evaluation(witness: Witness) -> None:
    made = run()
    told = [(call["step"], sum(call["returns"]) / 2) for call in witness.of("rlplug_evaluation")]
    assert [mean for _, mean in told] == [one.data["eval/return_mean"] for one in recorded(made, "evaluation")]
    assert all(len(call["returns"]) == len(call["lengths"]) == 2 for call in witness.of("rlplug_evaluation"))


def run_end(witness: Witness) -> None:
    last: list[str] = []
    witness.react("rlplug_run_end", lambda told: last.append([one.kind for one in read(told["run"].journal)][-1]))
    run()
    assert [call["status"] for call in witness.of("rlplug_run_end")] == ["finished"]
    assert witness.names[-1] == "rlplug_run_end"
    assert last == ["end"]


def run_error(witness: Witness) -> None:
    with pytest.raises(RuntimeError) as raised:
        run(f"{ENVS}:Crashing")
    (told,) = witness.of("rlplug_run_error")
    assert told["error"] is raised.value
    assert witness.names[-2:] == ["rlplug_run_error", "rlplug_run_end"]
    assert witness.of("rlplug_run_end")[0]["status"] == "failed"


def doctor(witness: Witness) -> None:
    witness.react("rlplug_doctor", lambda told: told["report"].append("the wire is cut"))
    report: list[str] = []
    Hooks().doctor(report)
    assert report == ["the wire is cut"]


TESTS = {f"rlplug_{test.__name__}": test for test in (
    configure, run_start, run_log, episodes, evaluation, run_checkpoint, run_end, run_error, doctor,
)}  # fmt: skip


def test_every_hook_has_a_test() -> None:
    assert list(TESTS.keys() ^ HOOKS.keys()) == []


@pytest.mark.parametrize("hook", TESTS)
def test_a_hook_is_called_as_documented(hook: str, witness: Witness) -> None:
    TESTS[hook](witness)
    assert hook in witness.names


def test_an_evaluation_records_how_often_episodes_succeed(witness: Witness) -> None:
    made = run(f"{WRAPS}:chain_with_success")
    shares = [one.data["eval/success_rate"] for one in recorded(made, "evaluation")]
    means = [one.data["eval/return_mean"] for one in recorded(made, "evaluation")]
    assert shares == means  # leaving at the right is 1, and a success
    assert all("eval/success_rate" not in one.data for one in recorded(run(), "evaluation"))


def test_an_interrupted_run_says_so_and_is_no_error(witness: Witness) -> None:
    witness.react("rlplug_run_log", lambda told: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(Interrupted):
        run()
    assert witness.of("rlplug_run_checkpoint")[-1]["reason"] == "interrupted"
    assert witness.of("rlplug_run_end")[0]["status"] == "interrupted"
    assert witness.of("rlplug_run_error") == []


def test_a_refused_run_is_only_configured(witness: Witness) -> None:
    with pytest.raises(BadConfig):
        run(total_timesteps="many")
    assert witness.names == ["rlplug_configure"]


def test_the_page_holds_every_specification() -> None:
    made = reference()
    assert made.PAGE.read_text(encoding="utf-8") == made.page(), "write it anew: python docs/plugins/make.py"


def test_the_reference_for_authors_is_current_and_short() -> None:
    """It holds every public member of `Algorithm` that torch's module does not have, and says something of each."""
    made = reference()
    written = made.API.read_text(encoding="utf-8")
    assert written == made.page_of_api(), "write it anew: python docs/plugins/make.py"
    own = {name for name in vars(rlplug_core.Algorithm) if not name.startswith("_")}
    named = {name for names in re.findall(r"^\| `([\w, ]+)", written, re.MULTILINE) for name in names.split(", ")}
    assert own - made.OF_RUNNERS <= named
    assert {"spec", "config", "generator", "initial", "step", "evaluation_rank", "truncations"} <= named
    assert not re.findall(r"^\| `.*` \|\s*\|$", written, re.MULTILINE), "a member has no description"
    assert len(written.splitlines()) < 120


def test_the_page_of_parts_holds_every_public_name() -> None:
    made = reference()
    written = made.PARTS.read_text(encoding="utf-8")
    assert written == made.page_of_parts(), "write it anew: python docs/plugins/make.py"
    names = re.findall(r"^\| `(\w+)", written, re.MULTILINE)
    assert sorted(names) == sorted({*rlplug_core.__all__})
    assert not re.findall(r"^\| `.*` \|\s*\|$", written, re.MULTILINE), "a part has no docstring or comment"


@for_each("hook", HOOKS)
def test_the_reference_gives_the_exact_signature(hook: str) -> None:
    """As Python sees it, independently of the script."""
    specification = getattr(importlib.import_module("rlplug_core.plugins.hook_specs"), hook)
    arguments = [f"{name}: {one.annotation}" for name, one in inspect.signature(specification).parameters.items()]
    text = (PAGES / "hooks.md").read_text(encoding="utf-8")
    assert f"def {hook}({', '.join(arguments)}) -> None\n" in text
    assert inspect.getdoc(specification) in text


def test_the_example_on_the_page_is_one() -> None:
    """Its names and arguments are those of hooks: what pluggy would refuse is no example."""
    text = (PAGES / "hooks.md").read_text(encoding="utf-8")
    code = text.partition("```python\n")[2].partition("```")[0]
    module: dict[str, Any] = {}
    exec(compile(ast.parse(code), "hooks.md", "exec"), module)
    hooks = Hooks(enabled=False)
    hooks.add(type("Page", (), {name: staticmethod(value) for name, value in module.items() if name in HOOKS}), "page")
    assert hooks.failed == {}
    assert HOOKS.keys() & module.keys()
