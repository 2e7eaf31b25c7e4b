"""All checks of one plugin: runs each once, after the checks it depends on, and considers expected failures."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, chdir, contextmanager
from dataclasses import replace
from functools import cached_property
from tempfile import TemporaryDirectory
from typing import Any

from rlplug_core.config.import_string import describe, is_target, place_of
from rlplug_core.errors import MissingPackage, UnknownEnv
from rlplug_core.plugins.index import CONTRACT, contract
from rlplug_core.plugins.names import usable
from rlplug_core.testing.kit.algorithm_checks import KINDS, SUBJECTS, Rule, load_place
from rlplug_core.testing.kit.outcome import Failed, Outcome, Skipped


class Examination:
    """The outcomes of the checks of one plugin, by name; `kind` is one of `algorithm_checks.KINDS`.

    Raises:
        UsageError, PluginError: no plugin has this name, or it cannot be used; decided without importing it. For an
            environment the first check raises UnknownEnv or MissingPackage.
    """

    def __init__(
        self,
        name: str,
        options: dict[str, object],
        env: str | None,
        expected: dict[str, str],
        kind: str = "algorithm",
        wrap: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.options = options
        self.env = env
        self.expected = expected
        self.kind = kind
        self.wrap = wrap
        self.record = None if kind != "algorithm" or is_target(name) else usable("algorithms", name)
        #: The contract of the plugin: that of its index if it has one, else that of this version.
        self.contract = (contract(self.record) if self.record else None) or CONTRACT
        self.rules = {rule.name: rule for rule in KINDS[kind]}
        self.outcomes: dict[str, Outcome] = {}
        #: Errors that mean that the environment does not exist.
        self.missing_env_errors = (UnknownEnv, MissingPackage) if kind == "env" else ()

    @cached_property
    def subject(self) -> Any:
        """The imported plugin, as the functions of its checks take it.

        Raises:
            UsageError, PluginError: the plugin cannot be loaded, or the given options are wrong.
        """
        make = load_place(SUBJECTS[self.kind])
        if self.kind == "algorithm":
            return make(self.name, self.record, self.options, self.env, self.wrap)
        return make(self.name, self.env) if self.kind == "wrapper" else make(self.name)

    @contextmanager
    def isolate(self) -> Iterator[None]:
        """Use one torch thread, as in a run, and restore the generators of the process after the block.

        Hooks and population rules work in a temporary directory, because they may write files.
        """
        from rlplug_core.loop.torch_settings import torch_settings  # imports torch, so only here
        from rlplug_core.seeds import preserve_generators

        with ExitStack() as stack:
            stack.enter_context(torch_settings(1))
            stack.enter_context(preserve_generators())
            if self.kind in ("hooks", "population"):
                stack.enter_context(chdir(stack.enter_context(TemporaryDirectory())))
            yield

    def outcome(self, name: str) -> Outcome:
        """Run one check once and return its outcome."""
        return self._with_expectation(self.rules[name], self._raw_outcome(name))

    def _raw_outcome(self, name: str) -> Outcome:
        """Return the outcome before expectations are considered."""
        if name not in self.outcomes:
            self.outcomes[name] = self._examine(self.rules[name])
        return self.outcomes[name]

    def _examine(self, rule: Rule) -> Outcome:
        for need in rule.needs:
            outcome = self._raw_outcome(need)
            if outcome.blocked:
                return outcome
            if outcome.status == "failed":
                return Outcome("skipped", f"it depends on '{need}', which fails", blocked=True)
        subject = self.subject
        started = time.perf_counter()
        try:
            with self.isolate():
                rule.function(subject)
            outcome = Outcome("passed")
        except self.missing_env_errors:
            raise
        except Skipped as reason:
            outcome = Outcome("skipped", str(reason))
        except Failed as failure:
            outcome = Outcome("failed", str(failure), error=failure.__cause__)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # the plugin is foreign code and may raise anything
            message = f"it raised {describe(error)}{place_of(error)}"
            outcome = Outcome("failed", message, error=error)
        return replace(outcome, seconds=time.perf_counter() - started)

    def is_provisional(self, rule: Rule) -> bool:
        """Return whether a check is newer than the contract of the plugin, so that a failure only warns."""
        return rule.since > self.contract

    def _with_expectation(self, rule: Rule, outcome: Outcome) -> Outcome:
        """Return the outcome of a check, given that it may be expected to fail, or may only warn."""
        reason = self.expected.get(rule.name)
        if reason and outcome.status == "failed":
            return Outcome("expected", f"{reason} ({outcome.message})", outcome.seconds)
        if reason and outcome.status == "passed":
            message = f"it passes; take it out of expected_failures ('{reason}')"
            return Outcome("failed", message, outcome.seconds)
        if self.is_provisional(rule) and outcome.status == "failed":
            return replace(outcome, status="warned")
        return outcome
