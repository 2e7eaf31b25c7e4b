"""Each hook is documented with its exact signature, and called in a real run as documented."""

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

def record_call(name, **arguments):
    rlplug_witness.calls.append((name, arguments))
    if rlplug_witness.react:
        rlplug_witness.react(name, arguments)
"""


def reference() -> Any:
    """Load the script that writes the reference."""
    spec = importlib.util.spec_from_file_location("rlplug_docs_make", PAGES / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HOOKS = {function.name: [argument.arg for argument in function.args.args] for function in reference().specifications()}


class Witness:
    """The calls of the hooks of an installed plugin."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.calls: list[tuple[str, dict[str, Any]]] = module.calls

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def of(self, hook: str) -> list[dict[str, Any]]:
        """Return the arguments of each call of one hook."""
        return [arguments for name, arguments in self.calls if name == hook]

    def react(self, hook: str, reaction: Callable[[dict[str, Any]], None]) -> None:
        """Set a function that each call of one hook calls."""
        self.module.react = lambda name, arguments: reaction(arguments) if name == hook else None


@pytest.fixture
def witness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Witness]:
    """Install a plugin that implements each hook with all its arguments; no other hook is called."""
    code = WITNESS + "".join(
        f"\n@hookimpl\ndef {name}({', '.join(arguments)}):\n"
        f"    record_call({name!r}, {', '.join(f'{argument}={argument}' for argument in arguments)})\n"
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


def train_run(env: str = f"{ENVS}:Chain", **options: Any) -> Run:
    return train(TINY, env, {**OPTIONS, **options})


def records(train_run: Run, *kinds: str) -> list[Any]:
    return [record for record in read(train_run.journal) if record.kind in kinds]


def configure(witness: Witness) -> None:
    witness.react("rlplug_configure", lambda call: call["config"].update(total_timesteps=200))
    run = train_run()
    assert len(witness.of("rlplug_configure")) == 1
    assert witness.names[0] == "rlplug_configure"
    assert run.config["options"]["total_timesteps"] == 200


def run_start(witness: Witness) -> None:
    kinds: list[list[str]] = []
    witness.react("rlplug_run_start", lambda call: kinds.append([record.kind for record in read(call["run"].journal)]))
    run = train_run()
    resume(run, total_timesteps=600)
    first, second = witness.of("rlplug_run_start")
    assert first["run"].path == second["run"].path == run.path
    assert kinds[0] == ["start"]
    assert kinds[1][-1] == "start"
    assert len(witness.of("rlplug_configure")) == 1


def run_log(witness: Witness) -> None:
    run = train_run()
    calls = [(call["step"], call["metrics"]) for call in witness.of("rlplug_run_log")]
    assert calls == [(record.step, numbers(record.data)) for record in records(run, "metrics", "evaluation")]
    assert len(calls) > 4


def numbers(data: Mapping[str, Any]) -> dict[str, float]:
    return {key: value for key, value in data.items() if not isinstance(value, bool)}


def run_checkpoint(witness: Witness) -> None:
    durable: list[bool] = []
    witness.react("rlplug_run_checkpoint", lambda call: durable.append((call["path"] / "manifest.json").is_file()))
    run = train_run()
    calls = witness.of("rlplug_run_checkpoint")
    assert [(call["path"].name, call["reason"]) for call in calls] == [
        (record.data["name"], record.data["reason"]) for record in records(run, "checkpoint")
    ]
    assert {call["reason"] for call in calls} == {"begin", "periodic", "best", "final"}
    assert all(durable)


def episodes(witness: Witness) -> None:
    run = train_run()
    calls = [
        (call["step"], {name: list(column) for name, column in call["episodes"].items()})
        for call in witness.of("rlplug_episodes")
    ]
    assert calls == [(record.step, record.data) for record in records(run, "episodes")]
    assert calls


def evaluation(witness: Witness) -> None:
    run = train_run()
    calls = [(call["step"], sum(call["returns"]) / 2) for call in witness.of("rlplug_evaluation")]
    assert [mean for _, mean in calls] == [record.data["eval/return_mean"] for record in records(run, "evaluation")]
    assert all(len(call["returns"]) == len(call["lengths"]) == 2 for call in witness.of("rlplug_evaluation"))


def run_end(witness: Witness) -> None:
    last: list[str] = []
    witness.react("rlplug_run_end", lambda call: last.append([record.kind for record in read(call["run"].journal)][-1]))
    train_run()
    assert [call["status"] for call in witness.of("rlplug_run_end")] == ["finished"]
    assert witness.names[-1] == "rlplug_run_end"
    assert last == ["end"]


def run_error(witness: Witness) -> None:
    with pytest.raises(RuntimeError) as raised:
        train_run(f"{ENVS}:Crashing")
    (call,) = witness.of("rlplug_run_error")
    assert call["error"] is raised.value
    assert witness.names[-2:] == ["rlplug_run_error", "rlplug_run_end"]
    assert witness.of("rlplug_run_end")[0]["status"] == "failed"


def doctor(witness: Witness) -> None:
    witness.react("rlplug_doctor", lambda call: call["report"].append("the wire is cut"))
    report: list[str] = []
    Hooks().doctor(report)
    assert report == ["the wire is cut"]


TESTS = {f"rlplug_{test.__name__}": test for test in (
    configure, run_start, run_log, episodes, evaluation, run_checkpoint, run_end, run_error, doctor,
)}  # fmt: skip


def test_every_hook_has_a_test() -> None:
    assert list(TESTS.keys() ^ HOOKS.keys()) == []


@pytest.mark.parametrize("hook", TESTS)
def test_hook_is_called_as_documented(hook: str, witness: Witness) -> None:
    TESTS[hook](witness)
    assert hook in witness.names


def test_evaluation_records_success_rate(witness: Witness) -> None:
    run = train_run(f"{WRAPS}:chain_with_success")
    rates = [record.data["eval/success_rate"] for record in records(run, "evaluation")]
    means = [record.data["eval/return_mean"] for record in records(run, "evaluation")]
    assert rates == means  # an exit at the right has return 1 and is a success
    assert all("eval/success_rate" not in record.data for record in records(train_run(), "evaluation"))


def test_interrupted_run_is_not_an_error(witness: Witness) -> None:
    witness.react("rlplug_run_log", lambda call: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(Interrupted):
        train_run()
    assert witness.of("rlplug_run_checkpoint")[-1]["reason"] == "interrupted"
    assert witness.of("rlplug_run_end")[0]["status"] == "interrupted"
    assert witness.of("rlplug_run_error") == []


def test_invalid_run_is_only_configured(witness: Witness) -> None:
    with pytest.raises(BadConfig):
        train_run(total_timesteps="many")
    assert witness.names == ["rlplug_configure"]


def test_page_of_hooks_is_current() -> None:
    script = reference()
    assert script.PAGE.read_text(encoding="utf-8") == script.page(), "write it again: python docs/plugins/make.py"


def test_reference_for_authors_is_current_and_short() -> None:
    """It describes each public member of `Algorithm` that torch's module does not have."""
    script = reference()
    page = script.API.read_text(encoding="utf-8")
    assert page == script.page_of_api(), "write it again: python docs/plugins/make.py"
    members = {name for name in vars(rlplug_core.Algorithm) if not name.startswith("_")}
    documented = {name for names in re.findall(r"^\| `([\w, ]+)", page, re.MULTILINE) for name in names.split(", ")}
    assert members - script.OF_RUNNERS <= documented
    assert {"spec", "config", "generator", "initial", "step", "evaluation_rank", "truncations"} <= documented
    assert not re.findall(r"^\| `.*` \|\s*\|$", page, re.MULTILINE), "a member has no description"
    assert len(page.splitlines()) < 120


def test_page_of_parts_has_each_public_name() -> None:
    script = reference()
    page = script.PARTS.read_text(encoding="utf-8")
    assert page == script.page_of_parts(), "write it again: python docs/plugins/make.py"
    names = re.findall(r"^\| `(\w+)", page, re.MULTILINE)
    assert sorted(names) == sorted({*rlplug_core.__all__})
    assert not re.findall(r"^\| `.*` \|\s*\|$", page, re.MULTILINE), "a part has no docstring or comment"
    for call in (  # arguments with defaults, by name only, inherited, of any number, with a long default
        "encoder(space, net, norm=None, *, scales=True)",
        "Samples(weight, share, obs, action, advantage, target, extras)",
        "SquashedGaussian(shape)",
        "choice(*values)",
        "Priority(alpha=0.6, beta=…, epsilon=1e-06)",
    ):
        assert f"| `{call}` |" in page


@for_each("hook", HOOKS)
def test_reference_has_the_exact_signature(hook: str) -> None:
    """As Python reports it, independently of the script."""
    specification = getattr(importlib.import_module("rlplug_core.plugins.hook_specs"), hook)
    parameters = inspect.signature(specification).parameters.values()
    arguments = [f"{each.name}: {each.annotation}" for each in parameters]
    text = (PAGES / "hooks.md").read_text(encoding="utf-8")
    assert f"def {hook}({', '.join(arguments)}) -> None\n" in text
    assert inspect.getdoc(specification) in text


def test_example_on_the_page_works() -> None:
    """Its names and arguments are those of hooks; pluggy refuses others."""
    text = (PAGES / "hooks.md").read_text(encoding="utf-8")
    code = text.partition("```python\n")[2].partition("```")[0]
    module: dict[str, Any] = {}
    exec(compile(ast.parse(code), "hooks.md", "exec"), module)
    hooks = Hooks(enabled=False)
    hooks.add(type("Page", (), {name: staticmethod(value) for name, value in module.items() if name in HOOKS}), "page")
    assert hooks.failed == {}
    assert HOOKS.keys() & module.keys()
