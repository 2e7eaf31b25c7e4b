"""Check learners: whether several can share a run, and whether one ignores options that the user set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import CodeType
from typing import Any

import torch
from torch import nn

from rlplug_core.algorithm import Algorithm
from rlplug_core.config.run_options import RunOptions
from rlplug_core.config.schema import flatten
from rlplug_core.errors import BadConfig, UsageError
from rlplug_core.loop.learner_data import gets_dataset
from rlplug_core.nets.normalize import RewardScale
from rlplug_core.nets.popart import PopArt
from rlplug_core.protocols import AnyLearner

#: For each option: the functions that make its part of a learner, and the class of that part.
_PARTS: dict[str, tuple[tuple[str, ...], type[nn.Module]]] = {
    "normalize_reward": (("RewardScale",), RewardScale),
    "popart": (("policy_and_critic", "PolicyAndCritic"), PopArt),
}


def check_learners(
    algorithm: str,
    learner: type[object],
    runner: str,
    options: RunOptions,
    values: Mapping[str, object],
) -> None:
    """Refuse several learners if they would learn something else than one learner from all their batches.

    Args:
        values: the options by dotted name.

    Raises:
        UsageError: the algorithm, the runner or an option is not sound with them.
    """
    for reason in _reasons(algorithm, learner, runner, options, values):
        raise UsageError(f"--learners {options.learners}: {reason}")


def _reasons(
    algorithm: str,
    learner: type[Any],
    runner: str,
    options: RunOptions,
    values: Mapping[str, object],
) -> Iterator[str]:
    if runner != "sync":
        advice = "; add --runner sync" if "sync" in learner.runners else ""
        yield f"several learners take each step together, which those of '{runner}' do not{advice}"
    if not (issubclass(learner, Algorithm) and learner.data_parallel):
        yield (
            f"{algorithm} does not say that it is sound with several learners (`data_parallel` in its class): it may "
            "change weights by more than the mean of gradients, or by the data of one batch; use one learner"
        )
    if values.get("target_kl") is not None:
        yield "target_kl ends an update depending on the batch of one learner; leave it out"
    if values.get("desired_kl") is not None:
        yield "desired_kl changes the learning rate depending on the batch of one learner; leave it out"
    if values.get("replay_ratio"):
        yield "with replay_ratio each learner takes its own random number of steps; leave it at 0"
    if values.get("popart"):
        yield "popart scales values by the statistics of one learner; leave it at false"
    yield from _reasons_of_options(learner, options)


def _reasons_of_options(
    learner: type[Any],
    options: RunOptions,
) -> Iterator[str]:
    if options.env_workers != 1:
        yield "each learner steps its own environments; leave out --env-workers"
    if options.dataset and not gets_dataset(learner):
        yield "each learner would fill its replay buffer with the same data; leave out --dataset"
    if options.init and "buffer" in options.init_parts:
        yield "each learner would start with the same buffer; leave buffer out of --init-parts"
    if options.inline:
        yield "each learner has its own process; leave out --inline"
    device = torch.device(options.device)
    if (
        device.type == "cuda"
        and device.index is None
        and torch.cuda.device_count() < options.learners
    ):
        yield f"each learner needs its own GPU, and torch sees {torch.cuda.device_count()}; use --device cpu"


def check_optimized(learner: AnyLearner, runner: str, learners: int) -> None:
    """Refuse parameters that each process would train for itself, unseen by the others.

    Parameters in `Optimizer.minimize` are shared, and so are those without a gradient, such as targets.

    Raises:
        UsageError: there is such a parameter.
    """
    if not isinstance(learner, Algorithm) or (runner != "async" and learners < 2):
        return
    known = {
        id(parameter) for optimizer in learner.optimizers for parameter in optimizer.parameters
    }
    unshared = [
        name
        for name, parameter in learner.named_parameters()
        if parameter.requires_grad and id(parameter) not in known
    ]
    if unshared:
        workers = runner == "async"
        consequence = (
            "worker would train its own copy"
            if workers
            else "learner would train it with its own gradient only"
        )
        raise UsageError(
            f"{type(learner).__name__} trains '{unshared[0]}' without an optimizer, so each {consequence}; "
            "make one with self.optimizer(...) in build, call requires_grad_(False), or use --runner sync with one "
            "learner"
        )


def check_ignored(
    learner: type[object],
    config: object,
    given: Iterable[str],
) -> None:
    """Refuse options that a subclass ignores, because it overrides the only methods that read them.

    Args:
        learner: the class.
        config: its options.
        given: the names of the options that the user set.

    Raises:
        BadConfig: there is such an option, and its value is not the default.
    """
    used: set[str] = set()
    unused: dict[str, str] = {}
    effective: set[str] = set()
    # From the class to its bases: a method does not run if a subclass overrides it without super().
    for base in learner.__mro__:
        for name, member in vars(base).items():
            code = getattr(getattr(member, "function", member), "__code__", None)
            if code is None:
                continue
            names = _names_in(code)
            if name in effective and f"super().{name}" not in used:
                unused |= dict.fromkeys(names, f"{base.__name__}.{name}")
                continue
            effective.add(name)
            used |= names | ({f"super().{name}"} if "super" in names else set())
    values = flatten(config)
    defaults = flatten(type(config)())
    for option in given:
        if option in unused and option not in used and values[option] != defaults[option]:
            raise BadConfig(
                f"{learner.__name__} ignores the option '{option}': only {unused[option]} reads it, which it "
                f"overrides; read self.config.{option} there, or leave the option out"
            )


def check_dropped(learner: AnyLearner, given: Iterable[str]) -> None:
    """Refuse options if a subclass removes the parts that its base class made for them.

    Args:
        learner: the learner, after `build`.
        given: the names of the options that the user set.

    Raises:
        BadConfig: there is such an option.
    """
    if not isinstance(learner, Algorithm):
        return
    name = type(learner).__name__
    for option in set(given) & _PARTS.keys():
        makers, part = _PARTS[option]
        # Its `build` reads the option and calls a function that makes the part.
        makes = any(
            {option, *makers} & _names_in(vars(base)["build"].__code__) > {option}
            for base in type(learner).__mro__
            if "build" in vars(base)
        )
        is_on = bool(getattr(learner.config, option, False))
        if makes and is_on and not any(isinstance(module, part) for module in learner.modules()):
            raise BadConfig(
                f"{name} ignores the option '{option}': after build it has no {part.__name__}, which its base class "
                f"made; keep that part in {name}.build, or leave the option out"
            )


def _names_in(code: CodeType) -> set[str]:
    """Return the names and the strings in code, and in the functions inside it."""
    names = {*code.co_names, *(text for text in code.co_consts if isinstance(text, str))}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names_in(constant)
    return names


def check_optimizers(learner: AnyLearner) -> None:
    """Check gradients on a device that were not checked yet.

    Raises:
        NonFinite: an optimizer met a NaN.
    """
    for optimizer in learner.optimizers if isinstance(learner, Algorithm) else ():
        optimizer.look()
