"""All checks of one plugin: runs each once, after the checks it depends on, and considers expected failures."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from rlplug_core.config.import_string import describe, is_target, place_of
from rlplug_core.errors import MissingPackage, UnknownEnv
from rlplug_core.plugins.index import CONTRACT, contract
from rlplug_core.plugins.names import usable
from rlplug_core.testing.kit.algorithm_checks import KINDS, Rule
from rlplug_core.testing.kit.outcome import Failed, Outcome, Skipped

if TYPE_CHECKING:
    from rlplug_core.testing.kit.subject import Subject


class Examined(Protocol):
    """The tested plugin, isolated from the rest of the process."""

    def isolate(self) -> AbstractContextManager[None]: ...


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
    def subject(self) -> Examined:
        """The imported plugin.

        Raises:
            UsageError, PluginError: the plugin cannot be loaded, or the given options are wrong.
        """
        if self.kind == "hooks":
            from rlplug_core.testing.kit.hook_checks import HooksSubject

            return HooksSubject(self.name)
        if self.kind in ("memory", "network"):
            from rlplug_core.testing.kit.module_subject import MemorySubject, NetworkSubject

            return MemorySubject(self.name) if self.kind == "memory" else NetworkSubject(self.name)
        if self.kind == "population":
            from rlplug_core.testing.kit.population_checks import PopulationSubject

            return PopulationSubject(self.name)
        if self.kind == "controller":
            from rlplug_core.testing.kit.controllers import ControllerSubject

            return ControllerSubject(self.name)
        if self.kind != "algorithm":
            from rlplug_core.testing.kit.env_subject import EnvSubject, WrapperSubject

            return (
                EnvSubject(self.name) if self.kind == "env" else WrapperSubject(self.name, self.env)
            )
        return self.algorithm

    @cached_property
    def algorithm(self) -> Subject:
        """The imported algorithm.

        Raises:
            UsageError, PluginError: the algorithm cannot be loaded, or the given options are wrong.
        """
        from rlplug_core.testing.kit.subject import Subject

        return Subject(self.name, self.record, self.options, self.env, self.wrap)

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
            with subject.isolate():
                rule.function(subject)
        except self.missing_env_errors:
            raise
        except Skipped as reason:
            return Outcome("skipped", str(reason), time.perf_counter() - started)
        except Failed as failure:
            return Outcome("failed", str(failure), time.perf_counter() - started, failure.__cause__)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # the plugin is foreign code and may raise anything
            return Outcome(
                "failed",
                f"it raised {describe(error)}{place_of(error)}",
                time.perf_counter() - started,
                error,
            )
        return Outcome("passed", "", time.perf_counter() - started)

    def is_provisional(self, rule: Rule) -> bool:
        """Return whether a check is newer than the contract of the plugin, so that a failure only warns."""
        return rule.since > self.contract

    def _with_expectation(self, rule: Rule, outcome: Outcome) -> Outcome:
        """Return the outcome of a check, given that it may be expected to fail, or may only warn."""
        reason = self.expected.get(rule.name)
        if reason and outcome.status == "failed":
            return Outcome("expected", f"{reason} ({outcome.message})", outcome.seconds)
        if reason and outcome.status == "passed":
            return Outcome(
                "failed",
                f"it passes; take it out of expected_failures ('{reason}')",
                outcome.seconds,
            )
        if self.is_provisional(rule) and outcome.status == "failed":
            return Outcome("warned", outcome.message, outcome.seconds, outcome.error)
        return outcome
