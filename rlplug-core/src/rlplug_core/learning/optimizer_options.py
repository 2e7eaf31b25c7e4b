"""Options of the optimizer, and the update rule that a name and these options mean."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields
from typing import TypeAlias

import torch

from rlplug_core.config.options import Fraction, NonNegative, Positive
from rlplug_core.errors import BadConfig, did_you_mean
from rlplug_core.learning.update_rules import RULES, Torch, UpdateRule, rule_names

#: A key of `RULES`, or a class of `torch.optim` such as `NAdam` or `torch.optim.NAdam`.
OptimizerName: TypeAlias = str


@dataclass(frozen=True)
class OptimizerOptions:
    """Arguments of the optimizer; None means the default of the optimizer."""

    # decay rates of Adam's two moments, such as 0.9,0.999
    betas: tuple[Fraction, ...] | None = None
    alpha: Fraction | None = None  # decay rate of RMSProp's mean square
    eps: Positive | None = None  # term added to the denominator of Adam and RMSProp
    # mean square of RMSProp before the first step; default: 0 for rmsprop, 1 for rmsprop_tf
    initial_accumulator_value: NonNegative | None = None
    weight_decay: NonNegative | None = None  # weight decay
    momentum: Fraction | None = None  # momentum of SGD
    nesterov: bool = False  # use Nesterov momentum

    def rule(self, name: OptimizerName, **usual: object) -> UpdateRule:
        """Return the rule `name`; `usual` has an algorithm's own values for unset options.

        Raises:
            BadConfig: the rule does not exist, it does not take an option, or the betas are not two numbers below 1.
        """
        _check_betas(self.betas)
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        given = {
            option: value
            for option, value in given.items()
            if value is not None and value is not False
        }
        if name in RULES:
            rule = RULES[name]
            return rule(**_arguments(name, rule, given, usual))
        return _torch(name, given, usual)


def _check_betas(betas: tuple[float, ...] | None) -> None:
    if betas is not None and not (len(betas) == 2 and all(0 <= beta < 1 for beta in betas)):
        given = ", ".join(map(str, betas)) or "none"
        raise BadConfig(
            f"option 'optimizer_kwargs.betas': expected two numbers of at least 0 and below 1, got {given}; "
            "write them as in "
            "--set optimizer_kwargs.betas=0.9,0.999"
        )


def _torch(
    name: str,
    given: dict[str, object],
    usual: dict[str, object],
) -> UpdateRule:
    base = torch.optim.Optimizer
    short = name.removeprefix("torch.optim.")
    known = {
        class_name: cls
        for class_name, cls in vars(torch.optim).items()
        if isinstance(cls, type) and issubclass(cls, base) and cls is not base
    }
    if short not in known:
        if short.lower().replace("-", "") == "kfac":
            raise BadConfig(
                f"no optimizer '{name}': K-FAC needs the inputs of each layer and gradients of log-probabilities, "
                "which only acktr's update computes; write 'rlplug run acktr ENV'"
            )
        usable = sorted(filter(_is_usable, known))
        near = did_you_mean(short, [*RULES, *usable]) or ";"
        raise BadConfig(
            f"no optimizer '{name}'{near} take {rule_names()}, or of torch.optim {', '.join(usable)}"
        )
    return Torch(short, _arguments(name, known[short], given, _adams(known[short], usual)))


def _is_usable(name: str) -> bool:
    """Return whether a class of `torch.optim` can be a rule with its own arguments."""
    try:
        Torch(name, {})
    except BadConfig:
        return False
    return True


def _adams(cls: type[object], usual: dict[str, object]) -> dict[str, object]:
    """Return those of an algorithm's options for Adam that mean the same to this class."""
    theirs, adams = (inspect.signature(one).parameters for one in (cls, torch.optim.Adam))
    return {
        name: value
        for name, value in usual.items()
        if name in theirs and theirs[name].default == adams[name].default
    }


def _arguments(
    name: str,
    cls: type[object],
    given: dict[str, object],
    usual: dict[str, object],
) -> dict[str, object]:
    """Return the keyword arguments of a class; refuse an option that would have no effect."""
    taken = set(inspect.signature(cls).parameters)
    fitting = [one.name for one in fields(OptimizerOptions) if one.name in taken]
    for option in given:
        if option not in fitting:
            ours = ", ".join(f"optimizer_kwargs.{one}" for one in fitting) or "none"
            raise BadConfig(
                f"optimizer '{name}' does not use 'optimizer_kwargs.{option}'; its options are {ours}"
            )
    return {**{option: value for option, value in usual.items() if option in fitting}, **given}
