"""The interface of the conformance kit: the checks of one plugin, to call in tests or to ask for their outcomes."""

from __future__ import annotations

import unittest
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlplug_core.errors import UsageError, did_you_mean
from rlplug_core.testing.kit.algorithm_checks import KINDS, Level, Rule
from rlplug_core.testing.kit.examination import Examination
from rlplug_core.testing.kit.outcome import Failed, Outcome


class ProvisionalFailure(FutureWarning):
    """A failed check is newer than the plugin's contract; it becomes mandatory when the plugin is indexed again."""


@dataclass(frozen=True, eq=False)
class Check:
    """One check of one plugin. Call it in a test, or get its `outcome`, which does not raise if the check fails.

    `str` returns its name, for the id of a test.
    """

    rule: Rule
    examination: Examination

    @property
    def name(self) -> str:
        return self.rule.name

    @property
    def level(self) -> Level:
        return self.rule.level

    @property
    def provisional(self) -> bool:
        """Return whether a failure only warns because the check is newer than the plugin's contract."""
        return self.examination.is_provisional(self.rule)

    @property
    def summary(self) -> str:
        """Return the tested behavior in one sentence."""
        return self.rule.summary

    def outcome(self) -> Outcome:
        """Run the check once and return its outcome.

        Raises:
            UsageError, PluginError: the plugin cannot be loaded, or the given options are wrong.
        """
        return self.examination.outcome(self.name)

    def __call__(self) -> None:
        """Raise if the plugin fails; raise `unittest.SkipTest`, which pytest understands, if the check does not apply.

        A failed provisional check emits the warning ProvisionalFailure.

        Raises:
            Failed: the check fails, or passes although a failure was expected.
        """
        outcome = self.outcome()
        sentence = f"{self.examination.name}, {self.name}: {outcome.message}"
        if outcome.status == "failed":
            raise Failed(sentence) from outcome.error
        if outcome.status == "warned":
            warnings.warn(sentence, ProvisionalFailure, stacklevel=2)
        elif outcome.status == "expected":
            raise unittest.SkipTest(f"fails as expected: {outcome.message}")
        elif outcome.status == "skipped":
            raise unittest.SkipTest(outcome.message)

    def __str__(self) -> str:
        return self.name


def checks(
    name: str,
    *,
    options: Mapping[str, object] | None = None,
    env: str | None = None,
    wrap: Sequence[str] = (),
    expected_failures: Mapping[str, str] | None = None,
    learn: bool = False,
) -> tuple[Check, ...]:
    """Return the checks of an algorithm; the plugin is imported when the first check is called.

    Args:
        name: an installed algorithm's id, `module:Class` or `./file.py:Class`.
        options: option values, if the defaults make no update within 20,000 env steps.
        env: an environment as in `rlplug run`, if the algorithm accepts none of the kit's own.
        wrap: wrappers for each environment, `NAME` or `NAME:option=value`, if the algorithm needs them; environments
            of the kit that a wrapper refuses are left out.
        expected_failures: reasons by name of check. Strict: a check in it that passes counts as failed.
        learn: include the checks that train, each for a few seconds.

    Raises:
        UsageError: the algorithm does not exist, or an expected failure has no reason or names no check.
        PluginError: the plugin is disabled, incompatible or broken.
    """
    return _checks(
        "algorithm",
        name,
        expected_failures,
        options,
        env,
        wrap=tuple(wrap),
        learn=learn,
    )


def env_checks(
    name: str,
    *,
    expected_failures: Mapping[str, str] | None = None,
) -> tuple[Check, ...]:
    """Return the checks of an environment: an id, `module:Name` or `./file.py:Name`; arguments as in `checks`."""
    return _checks("env", name, expected_failures)


def wrapper_checks(
    name: str,
    *,
    env: str | None = None,
    expected_failures: Mapping[str, str] | None = None,
) -> tuple[Check, ...]:
    """Return the checks of a wrapper, `NAME` or `NAME:option=value`, around `env` or one of the kit's environments."""
    return _checks("wrapper", name, expected_failures, env=env)


def controller_checks(
    name: str,
    *,
    expected_failures: Mapping[str, str] | None = None,
) -> tuple[Check, ...]:
    """Return the checks of a controller, `NAME` or `NAME:option=value`; arguments as in `checks`."""
    return _checks("controller", name, expected_failures)


def hook_checks(
    distribution: str,
    *,
    expected_failures: Mapping[str, str] | None = None,
) -> tuple[Check, ...]:
    """Return the checks of the hook plugins of a distribution."""
    return _checks("hooks", distribution, expected_failures)


def memory_checks(
    name: str,
    *,
    expected_failures: Mapping[str, str] | None = None,
) -> tuple[Check, ...]:
    """Return the checks of a memory, `NAME`, `NAME:option=value` or `./file.py:Class`; arguments as in `checks`."""
    return _checks("memory", name, expected_failures)


def network_checks(
    name: str,
    *,
    expected_failures: Mapping[str, str] | None = None,
) -> tuple[Check, ...]:
    """Return the checks of a network that `net.factory` takes, `NAME` or `./file.py:make`; arguments as in `checks`."""
    return _checks("network", name, expected_failures)


def population_checks(
    name: str,
    *,
    expected_failures: Mapping[str, str] | None = None,
) -> tuple[Check, ...]:
    """Return the checks of a population rule, `NAME`, `NAME:option=value` or `./file.py:Class`; see `checks`."""
    return _checks("population", name, expected_failures)


def _checks(
    kind: str,
    name: str,
    expected_failures: Mapping[str, str] | None,
    options: Mapping[str, object] | None = None,
    env: str | None = None,
    wrap: tuple[str, ...] = (),
    learn: bool = False,
) -> tuple[Check, ...]:
    """Return the checks of a plugin of this kind; arguments as in `checks`."""
    chosen = tuple(rule for rule in KINDS[kind] if learn or rule.level != "learn")
    expected = dict(expected_failures or {})
    known = {rule.name for rule in chosen}
    for failure, reason in expected.items():
        if failure not in known:
            raise UsageError(
                f"expected_failures: there is no check '{failure}'{did_you_mean(failure, known)}"
            )
        if not reason.strip():
            raise UsageError(f"expected_failures: '{failure}' needs a reason")
    examination = Examination(name, dict(options or {}), env, expected, kind, wrap=wrap)
    return tuple(Check(rule, examination) for rule in chosen)
