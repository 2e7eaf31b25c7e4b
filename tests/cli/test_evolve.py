"""`evolve`: members train in chunks and exchange weights; a killed population continues exactly."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from rlplug_cli.evolve.evolution import Evolution, Plan
from rlplug_cli.evolve.history import History
from rlplug_cli.mlflow.batch import tags_of
from rlplug_cli.sweep.seeds import with_defaults
from rlplug_cli.sweep.task_pool import TaskPool
from rlplug_cli.tune.goal import Goal
from rlplug_core.config.options import Range
from rlplug_core.config.schema import Option
from rlplug_core.errors import PluginError, RlplugError, Untrusted, UsageError
from rlplug_core.loop.population import Exchange, Member, Truncation, TruncationConfig
from rlplug_core.runs.api import resume, train
from rlplug_core.runs.checkpoint import Checkpoints, digests
from rlplug_core.runs.journal import Record, read

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "schemas" / "evolve.json").read_bytes())
RATE = Option("learning_rate", "float", 1e-3, "", minimum=0, open_minimum=True)
SPACE = {"learning_rate": Range("log", (1e-4, 1e-1))}
OPTIONS: dict[str, Any] = {
    "total_timesteps": 300, "eval_episodes": 2, "final_eval_episodes": 0, "net.hidden": [8], "num_envs": 2,
}  # fmt: skip


class Killed(BaseException):
    """Stands for a kill."""


class InProcess:
    """Runs tasks in this process; raises Killed before or after start number `kill`."""

    def __init__(self, kill: int = 0, after: bool = False) -> None:
        self.kill_at = kill
        self.after = after
        self.starts = 0

    def start(self, words: Sequence[str], log: Path, cores: int) -> InProcess:
        self.starts += 1
        if self.starts == self.kill_at and not self.after:
            raise Killed
        until = int(words[words.index("--until") + 1]) if "--until" in words else None
        if words[0] == "resume":
            resume(words[1], until=until, hooks=False)
        else:
            pairs = dict(word.split("=", 1) for flag, word in pairwise(words) if flag == "--set")
            flags = dict(pairwise(words))
            options = {**OPTIONS, "seed": int(flags["--seed"]), "eval_every": int(pairs["eval_every"])}
            options["learning_rate"] = float(pairs["learning_rate"])
            train(words[1], words[2], options, out=flags["--out"], name=flags["--name"], until=until, hooks=False)
        if self.starts == self.kill_at:
            raise Killed
        return self

    def code(self) -> int | None:
        return 0

    def stop(self) -> None: ...

    def kill(self) -> None: ...


def plan(rule: Any, members: int = 3, words: str = "truncation") -> Plan:
    goal = Goal(
        "a2c",
        "CartPole-v1",
        (RATE,),
        (),
        {},
        with_defaults(OPTIONS),
        SPACE,
        tuple(range(1, members + 1)),
        1,
        "population",
        1,
    )
    return Plan(goal, 100, rule, words)


def evolution(directory: Path, place: Any, rule: Any = None, members: int = 3) -> Evolution:
    directory.mkdir(exist_ok=True)
    rule = rule or Truncation(TruncationConfig())
    return Evolution(plan(rule, members), TaskPool(directory, place, 2))


def finish(evolution: Evolution) -> Evolution:
    for _ in range(60):
        if evolution.done:
            return evolution
        evolution.step()
    raise AssertionError("not done")


def results(directory: Path) -> dict[str, Any]:
    """Return the final weights of every member, and the history."""
    runs = sorted(directory.glob("member-*"))
    weights = [digests(Checkpoints(run / "checkpoints").kept("final")[0].path, "learner") for run in runs]
    history = json.loads((directory / "population.json").read_bytes())
    return {"weights": weights, "chunks": history["chunks"], "first": history["first"]}


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pop") / "complete"
    finish(evolution(directory, InProcess()))
    return directory


def test_worst_member_copies_state_and_options_of_the_best(complete: Path) -> None:
    population = results(complete)
    assert [chunk["step"] for chunk in population["chunks"]] == [100, 200]
    changed = 0
    for number, chunk in enumerate(population["chunks"], 1):
        scores = chunk["scores"]
        for member, change in chunk["changes"].items():
            changed += 1
            assert scores[int(member)] == min(scores)
            assert scores[change["source"]] == max(scores) > min(scores)
            run = sorted(complete.glob("member-*"))[int(member)]
            source = sorted(complete.glob("member-*"))[change["source"]].name
            records = [r for r in read(run / "journal.jsonl", kinds=("exchange",)) if r.data["chunk"] == number]
            assert [(r.step, r.data["source"]) for r in records] == [(chunk["step"], source)]
            config = json.loads((run / "config.json").read_bytes())
            assert config["exchanges"][-1]["options"].keys() == {"learning_rate"}
    assert changed


@pytest.mark.parametrize(
    ("kill", "after"),
    [(4, True), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((2, False), (5, False), (8, True)))],
)
def test_killed_population_continues_exactly(kill: int, after: bool, complete: Path, tmp_path: Path) -> None:
    with pytest.raises(Killed):
        finish(evolution(tmp_path / "part", InProcess(kill, after)))
    finish(evolution(tmp_path / "part", InProcess()))
    assert results(tmp_path / "part") == results(complete)


@pytest.mark.parametrize("call", [2, 3])
def test_kill_near_a_decision_does_not_change_it(
    call: int, complete: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first write starts the population, the second records a decision, the third that it was applied."""
    plain = History.write
    calls = [0]

    def write_and_die(self: History, directory: Path) -> None:
        plain(self, directory)
        calls[0] += 1
        if calls[0] == call:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(History, "write", write_and_die)
        with pytest.raises(Killed):
            finish(evolution(tmp_path / "part", InProcess()))
    finish(evolution(tmp_path / "part", InProcess()))
    assert results(tmp_path / "part") == results(complete)


class Keep:
    """A rule that changes nothing and counts its calls in its state."""

    def __init__(self) -> None:
        self.calls = 0

    def exchange(self, members: Any, space: Any, generator: Any) -> dict[int, Exchange]:
        self.calls += 1
        return {}

    def state_dict(self) -> dict[str, int]:
        return {"calls": self.calls}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self.calls = state["calls"]


def test_members_without_exchanges_match_single_runs_and_rules_keep_their_state(tmp_path: Path) -> None:
    rule = Keep()
    with pytest.raises(Killed):
        finish(evolution(tmp_path / "pop", InProcess(5), rule, members=2))
    rule = Keep()
    population = finish(evolution(tmp_path / "pop", InProcess(), rule, members=2))
    assert rule.calls == 2
    rate = population.history.first[1]["learning_rate"]
    options = {**OPTIONS, "seed": 2, "eval_every": 100, "learning_rate": rate}
    single = train("a2c", "CartPole-v1", options, out=tmp_path, name="single", hooks=False)
    saved = Checkpoints(single.directory.checkpoints_path).kept("final")[0]
    assert results(tmp_path / "pop")["weights"][1] == digests(saved.path, "learner")


class Answer:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def exchange(self, members: Sequence[Member], space: Any, generator: Any) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (ValueError("no"), "the rule 'truncation' failed: ValueError: no"),
        ([1], "returned list; return a dictionary from the numbers of members to rl.Exchange"),
        ({0: 1}, "returned dict; return a dictionary"),
        ({0: Exchange(7, {})}, "lets member 0 copy member 7, but the members are 0 to 1"),
        ({0: Exchange(1, {}), 1: Exchange(0, {})}, "lets member 0 copy member 1, which copies another member itself"),
        (
            {0: Exchange(0, {"learning_rate": -1.0})},
            "gives member 0 a wrong value: a2c: option 'learning_rate': expected",
        ),
        (
            {0: Exchange(0, {"learning_rate": [1]})},
            r"gives member 0 a wrong value: option 'learning_rate' is list \[1\]",
        ),
        ({0: Exchange(0, {"gamma": 0.5})}, "sets 'gamma', which has no range; it may set learning_rate"),
    ],
)
def test_invalid_rule_prints_one_sentence(answer: Any, sentence: str, tmp_path: Path) -> None:
    population = evolution(tmp_path / "pop", InProcess(), Answer(answer), members=2)
    with pytest.raises(PluginError, match=sentence):
        finish(population)
    assert json.loads((tmp_path / "pop" / "population.json").read_bytes())["chunks"] == []


def test_failed_member_is_replaced_or_stops_the_population(tmp_path: Path) -> None:
    class Failing(InProcess):
        def start(self, words: Sequence[str], log: Path, cores: int) -> InProcess:
            if words[0] == "resume" and "member-00" in words[1] and self.starts < 3:
                self.starts += 1
                path = Path(words[1]) / "journal.jsonl"
                last = json.loads(path.read_bytes().splitlines()[-1])
                lines = [("start", {"after": last["seq"]}), ("error", {"type": "NonFinite", "message": "a NaN"}),
                         ("end", {"status": "failed"})]  # fmt: skip
                with path.open("a") as file:
                    for number, (kind, data) in enumerate(lines, last["seq"] + 1):
                        record = {"seq": number, "time": last["time"], "kind": kind, "step": 150, "data": data}
                        file.write(json.dumps(record, separators=(",", ":")) + "\n")
                return self
            return super().start(words, log, cores)

    with pytest.raises(RlplugError, match="member-00-s1 failed, and the rule did not replace it: NonFinite: a NaN"):
        finish(evolution(tmp_path / "none", Failing(), Keep(), members=2))
    population = finish(evolution(tmp_path / "pop", Failing(), members=2))
    assert population.history.chunks[1].scores[0] is None
    assert population.history.chunks[1].changes["0"].source == 1
    assert all(entry.progress.status == "finished" for entry in population.entries)


def test_other_search_or_foreign_history_is_refused(complete: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"was started with other options; choose another --name"):
        History.read(complete, "other")
    content = json.loads((complete / "population.json").read_bytes())
    content["seal"] = ""
    (tmp_path / "population.json").write_text(json.dumps(content))
    with pytest.raises(Untrusted, match="was not written by this account"):
        History.read(tmp_path, content["search"])


def test_mlflow_gets_a_tag_for_each_exchange() -> None:
    data = {"chunk": 2, "source": "member-01-s2", "checkpoint": "step-1", "options": {"gamma": 0.9}}
    record = Record(1, 1, "exchange", 4000, data)
    assert tags_of(record) == {"rlplug.exchange.2": "step 4,000: state of member-01-s2, gamma = 0.9"}
    own = Record(1, 1, "exchange", 4000, {**data, "source": "", "options": {}})
    assert tags_of(own) == {"rlplug.exchange.2": "step 4,000: its own state"}


def test_command_trains_and_continues_a_population(
    place: Path, rlplug: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    (place / "mine.py").write_text(
        "from rlplug_core import Exchange\n\n\nclass Mine:\n"
        "    def exchange(self, members, space, generator):\n"
        "        return {0: Exchange(1, {'gamma': 0.5})}\n"
    )
    words = ("evolve", "a2c", "CartPole-v1", "--members", "2", "--every", "100", "--total-timesteps", "200",
             "--eval-episodes", "1", "--final-eval-episodes", "1", "--gamma", "0.5..0.99", "--rule", "./mine.py:Mine",
             "--name", "pop", "--jobs", "2")  # fmt: skip
    done = rlplug(*words, "--json")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    jsonschema.validate(result, SCHEMA)
    assert [member["status"] for member in result["members"]] == ["finished"] * 2
    assert result["members"][0]["options"] == {"gamma": 0.5}
    assert result["chunks"][0]["changes"]["0"]["source"] == 1
    again = rlplug(*words)
    assert again.code == 0, again.err
    assert "2 chunks, 1 exchanges" in again.out
    other = rlplug(*words, "--seed", "5")
    assert (other.code, "was started with other options" in other.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--members", "1"), "--members 1: a population has two members or more"),
        (("--every", "500", "--total-timesteps", "500"), "so nothing would be exchanged; reduce it"),
        (("--eval-every", "10"), "members are evaluated at the end of each chunk; leave --eval-every out"),
        (("--rule", "trunc"), "no population rule 'trunc' is installed"),
        (("--rule", "truncation:shar=1"), "has no option 'shar'; did you mean 'share'?"),
    ],
)
def test_invalid_arguments_print_one_sentence(
    words: tuple[str, ...], sentence: str, rlplug: Callable[..., Any]
) -> None:
    result = rlplug("evolve", "a2c", "CartPole-v1", *words)
    assert result.code == 2
    assert sentence in result.err
