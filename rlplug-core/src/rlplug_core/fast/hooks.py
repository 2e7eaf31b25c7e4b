"""Finds hooks: torch's modules and autograd call them, and the fast path does not.

A check takes little time if no hook was registered since the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import nn
from torch.nn.modules.module import _has_any_global_hook
from torch.utils.hooks import RemovableHandle

#: The attributes of a module with its hooks.
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class HookCheck:
    """Checks for hooks.

    Args:
        find: returns whether there are hooks. It is called again only after another hook of any module or tensor
            was registered; torch numbers hooks.
    """

    def __init__(self, find: Callable[[], bool]) -> None:
        self.find = find
        self.checked: int | None = None

    def __call__(self) -> bool:
        """Return whether there are hooks."""
        number = RemovableHandle.next_id
        if number == self.checked:
            return False
        if self.find():
            return True
        self.checked = number
        return False


def hooks_of_modules(modules: Iterable[nn.Module]) -> HookCheck:
    """Return a check for hooks of modules, and for those of all modules."""
    hooks = [getattr(module, name) for module in modules for name in HOOKS]
    return HookCheck(lambda: any(hooks) or _has_any_global_hook())


def hooks_of_parameters(parameters: Iterable[nn.Parameter]) -> HookCheck:
    """Return a check for hooks that autograd calls with gradients of parameters."""
    names = "_backward_hooks", "_post_accumulate_grad_hooks"
    return HookCheck(
        lambda: any(getattr(each, name, None) for each in parameters for name in names)
    )
