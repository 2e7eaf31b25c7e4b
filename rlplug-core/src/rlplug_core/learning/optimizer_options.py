"""Options of the optimizer, and the update rule for a name and these options."""

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
    weight_decay: NonNegative | None = None  # how strongly each step pulls parameters towards 0
    momentum: Fraction | None = None  # momentum of SGD
    nesterov: bool = False  # use Nesterov momentum

    def rule(self, name: OptimizerName, **defaults: object) -> UpdateRule:
        """Return the rule `name`; `defaults` are the algorithm's values for options that are not set.

        Raises:
            BadConfig: the rule does not exist, it does not take an option, or the betas are not two numbers below 1.
        """
        _check_betas(self.betas)
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        options = {
            option: value
            for option, value in values.items()
            if value is not None and value is not False
        }
        if name in RULES:
            rule = RULES[name]
            return rule(**_arguments(name, rule, options, defaults))
        return _torch_rule(name, options, defaults)


def _check_betas(betas: tuple[float, ...] | None) -> None:
    if betas is not None and not (len(betas) == 2 and all(0 <= beta < 1 for beta in betas)):
        listed = ", ".join(map(str, betas)) or "none"
        raise BadConfig(
            f"option 'optimizer_kwargs.betas': expected two numbers of at least 0 and below 1, got {listed}; "
            "write them as in --set optimizer_kwargs.betas=0.9,0.999"
        )


def _torch_rule(
    name: str,
    options: dict[str, object],
    defaults: dict[str, object],
) -> UpdateRule:
    """Return the rule of a class of `torch.optim`."""
    base = torch.optim.Optimizer
    short = name.removeprefix("torch.optim.")
    classes = {
        class_name: each
        for class_name, each in vars(torch.optim).items()
        if isinstance(each, type) and issubclass(each, base) and each is not base
    }
    if short not in classes:
        if short.lower().replace("-", "") == "kfac":
            raise BadConfig(
                f"no optimizer '{name}': K-FAC needs the inputs of each layer and gradients of log-probabilities, "
                "which only acktr's update computes; write 'rlplug run acktr ENV'"
            )
        usable = sorted(filter(_is_usable, classes))
        near = did_you_mean(short, [*RULES, *usable]) or ";"
        raise BadConfig(
            f"no optimizer '{name}'{near} take {rule_names()}, or of torch.optim {', '.join(usable)}"
        )
    cls = classes[short]
    return Torch(short, _arguments(name, cls, options, _shared_with_adam(cls, defaults)))


def _is_usable(name: str) -> bool:
    """Return whether a class of `torch.optim` can be a rule with its own arguments."""
    try:
        Torch(name, {})
    except BadConfig:
        return False
    return True


def _shared_with_adam(
    cls: type[object],
    defaults: dict[str, object],
) -> dict[str, object]:
    """Return the defaults of an algorithm, which are meant for Adam, that suit this class, too.

    One suits if torch has the same default for the option in Adam and in this class.
    """
    parameters = inspect.signature(cls).parameters
    adam_parameters = inspect.signature(torch.optim.Adam).parameters
    return {
        name: value
        for name, value in defaults.items()
        if name in parameters and parameters[name].default == adam_parameters[name].default
    }


def _arguments(
    name: str,
    cls: type[object],
    options: dict[str, object],
    defaults: dict[str, object],
) -> dict[str, object]:
    """Return the keyword arguments of a class.

    Raises:
        BadConfig: an option would have no effect.
    """
    parameters = inspect.signature(cls).parameters
    usable = [field.name for field in fields(OptimizerOptions) if field.name in parameters]
    for option in options:
        if option not in usable:
            listed = ", ".join(f"optimizer_kwargs.{each}" for each in usable) or "none"
            raise BadConfig(
                f"optimizer '{name}' does not use 'optimizer_kwargs.{option}'; its options are {listed}"
            )
    return {**{option: value for option, value in defaults.items() if option in usable}, **options}
