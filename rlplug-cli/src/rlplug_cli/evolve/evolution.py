"""The loop of a population: its members train until the end of a chunk, then the rule exchanges states and options."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from rlplug_cli.evolve.history import Change, Chunk, History
from rlplug_cli.parameters import parse_option
from rlplug_cli.sweep.manifest import Task, open_sweep
from rlplug_cli.sweep.task_pool import Entry, TaskPool
from rlplug_cli.tune.goal import Goal
from rlplug_cli.tune.search import set_text
from rlplug_core.errors import BadConfig, PluginError, RlplugError, UsageError
from rlplug_core.loop import Exchange, Member, PopulationRule, decide, sample_range
from rlplug_core.protocols import Stateful
from rlplug_core.runs import Checkpoints, Taken, take_checkpoint


@dataclass(frozen=True)
class Plan:
    """A population: the search with a seed for each member, env steps per chunk, the rule, and the rule as typed."""

    goal: Goal
    every: int
    rule: PopulationRule
    words: str

    @property
    def total(self) -> int:
        total = self.goal.values["total_timesteps"]
        assert isinstance(total, int)
        return total

    @property
    def search(self) -> str:
        """Characters that identify the search: another search must not continue it."""
        return f"{self.goal.digest} {self.every} {self.words}"


class Evolution:
    """Runs a population; the lock of the pool's directory must be held."""

    def __init__(self, plan: Plan, pool: TaskPool) -> None:
        self.plan = plan
        self.pool = pool
        self.seed = plan.goal.seeds[0]
        self.history = History.read(pool.directory, plan.search) or self._new_history()
        if isinstance(plan.rule, Stateful) and self.history.chunks:
            plan.rule.load_state_dict(self.history.chunks[-1].rule)
        tasks = [self._task(number) for number in range(len(plan.goal.seeds))]
        open_sweep(pool.directory, "evolve", tasks)
        self.history.write(pool.directory)
        values = plan.goal.values
        self.entries = [pool.add(task, values, plan.goal.cores) for task in tasks]
        if self.history.chunks and not self.history.chunks[-1].applied:
            self._apply(self.history.chunks[-1])

    def _new_history(self) -> History:
        generator = np.random.default_rng([self.seed, 0])
        space = self.plan.goal.space
        first = [
            {name: sample_range(range, generator) for name, range in space.items()}
            for _ in self.plan.goal.seeds
        ]
        return History(self.plan.search, tuple(first))

    def _task(self, number: int) -> Task:
        goal = self.plan.goal
        words = [*goal.words, "--set", f"eval_every={self.plan.every}"]
        for name, value in self.history.first[number].items():
            words += ["--set", f"{name}={set_text(value)}"]
        seed = goal.seeds[number]
        return Task(f"member-{number:02d}-s{seed}", goal.algorithm, goal.env, seed, tuple(words))

    @property
    def boundary(self) -> int:
        """Return the env step at the end of the current chunk."""
        return min((len(self.history.chunks) + 1) * self.plan.every, self.plan.total)

    @property
    def done(self) -> bool:
        """Return whether every member has ended."""
        at_end = self.boundary == self.plan.total
        return at_end and all(
            self._is_at_boundary(entry) or self._has_failed(entry) for entry in self.entries
        )

    def step(self) -> list[Entry]:
        """Poll the members, start those that may run, and exchange at the end of a chunk; return those that ended."""
        ended = self.pool.poll()
        open_entries = [entry for entry in self.entries if not self._is_at_boundary(entry)]
        for entry in open_entries:
            if (
                entry.job is None
                and not self._has_failed(entry)
                and self.pool.has_room(entry.cores)
            ):
                last = self.boundary == self.plan.total
                entry.extra = () if last else ("--until", str(self.boundary))
                self.pool.start(entry)
        idle = all(entry.job is None for entry in self.entries)
        if idle and not self.done and all(map(self._has_failed, open_entries)):
            self._exchange()
        return ended

    def _is_at_boundary(self, entry: Entry) -> bool:
        """Return whether a member is at the end of the current chunk."""
        if entry.job is not None:
            return False
        if self.boundary == self.plan.total:
            return entry.progress.is_over
        paused = entry.progress.status in ("interrupted", "finished")
        return paused and entry.progress.steps >= self.boundary

    def _has_failed(self, entry: Entry) -> bool:
        """Return whether a member ended in the current chunk without reaching its end."""
        if entry.job is not None or self._is_at_boundary(entry):
            return False
        return entry.starts > 0 or entry.progress.status == "failed"

    def _exchange(self) -> None:
        """Let the rule decide, save its decisions, and apply them."""
        step = self.boundary
        scores = tuple(
            None if self._has_failed(entry) else self._score(entry) for entry in self.entries
        )
        chunk = Chunk(step, scores, {})
        members = self.members(self.history.with_chunk(chunk))
        generator = np.random.default_rng([self.seed, len(self.history.chunks) + 1])
        space = self.plan.goal.space
        decisions = decide(self.plan.rule, self.plan.words, members, space, generator)
        for number, exchange in decisions.items():
            self._check_values(number, exchange.options)
        changes = {str(number): self._change(exchange) for number, exchange in decisions.items()}
        self._check_failed(changes)
        state = self.plan.rule.state_dict() if isinstance(self.plan.rule, Stateful) else None
        chunk = replace(chunk, changes=changes, rule=state)
        self.history = self.history.with_chunk(chunk)
        self.history.write(self.pool.directory)
        self._apply(chunk)

    def _score(self, entry: Entry) -> float:
        """Return the mean return of a member's evaluation at the end of the current chunk.

        Raises:
            RlplugError: there is none.
        """
        score = entry.progress.evaluations.get(self.boundary)
        if score is None:
            raise RlplugError(
                f"{entry.task.name} has no evaluation at step {self.boundary:,}; leave eval_every out"
            )
        return score

    def members(self, history: History) -> list[Member]:
        """Return the members with their scores and current options."""
        members = []
        for number in range(len(self.plan.goal.seeds)):
            scores = [chunk.scores[number] for chunk in history.chunks]
            known = tuple(math.nan if score is None else score for score in scores)
            members.append(Member(number, known, history.options(number)))
        return members

    def _change(self, exchange: Exchange) -> Change:
        """Return a decision with the name of its checkpoint."""
        path = self.entries[exchange.source].progress.path / "checkpoints"
        checkpoint = Checkpoints(path).kept("step")[0].path.name
        return Change(exchange.source, checkpoint, dict(exchange.options))

    def _check_values(self, number: int, values: Mapping[str, object]) -> None:
        """Raise PluginError if new values of a member do not have the types of their options."""
        options = {option.name: option for option in self.plan.goal.options}
        sentence = f"the rule '{self.plan.words}' gives member {number} a wrong value"
        for name, value in values.items():
            try:
                parsed = parse_option(options[name], set_text(value), self.plan.goal.algorithm)
            except BadConfig as error:
                raise PluginError(f"{sentence}: {error}") from error
            expected = list(value) if isinstance(value, tuple) else value
            if parsed != expected and not isinstance(value, str):
                raise PluginError(
                    f"{sentence}: option '{name}' is {type(value).__name__} {value!r}"
                )

    def _check_failed(self, changes: Mapping[str, Change]) -> None:
        """Raise RlplugError if a failed member keeps its state."""
        for number, entry in enumerate(self.entries):
            if self._has_failed(entry) and str(number) not in changes:
                reason = self.pool.failure_reason(entry)
                raise RlplugError(
                    f"{entry.task.name} failed, and the rule did not replace it: {reason}"
                )

    def _apply(self, chunk: Chunk) -> None:
        """Give the runs their changes; those that already have theirs stay unchanged."""
        number = len(self.history.chunks)
        for text, change in chunk.changes.items():
            entry = self.entries[int(text)]
            is_own = change.source == int(text)
            taken = Taken(
                chunk=number,
                source="" if is_own else self.entries[change.source].task.name,
                checkpoint=change.checkpoint,
                options=self.plan.goal.with_types(change.options),
            )
            take_checkpoint(entry.progress.path, taken)
        self.history = self.history.with_chunk(replace(chunk, applied=True))
        self.history.write(self.pool.directory)
        for entry in self.entries:
            entry.starts = 0
            entry.progress.read_status()


def rule_of(rule: object, words: str) -> PopulationRule:
    """Return a rule; raise PluginError if it cannot be one."""
    if not isinstance(rule, PopulationRule):
        raise PluginError(f"'{words}' made {type(rule).__name__}, which has no method 'exchange'")
    return rule


def check_chunks(every: int, total: int, members: int) -> None:
    """Raise UsageError if there is nothing to exchange."""
    if members < 2:
        raise UsageError("--members 1: a population has two members or more")
    if not every < total:
        raise UsageError(
            f"--every {every} is not less than --total-timesteps {total}, so nothing would be exchanged; reduce it"
        )
