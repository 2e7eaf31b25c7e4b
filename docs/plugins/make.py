"""Write the reference in `hooks.md` from the specifications: `python docs/plugins/make.py`; a test holds them equal."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE / "hooks.md"
SOURCE = HERE.parents[1] / "rlplug-core" / "src" / "rlplug_core" / "plugins" / "hook_specs.py"
BEGIN, END = "<!-- reference: from rlplug_core/plugins/hook_specs.py -->", "<!-- reference: end -->"


def specifications() -> Iterator[ast.FunctionDef]:
    """The functions that are marked as hook specifications, in the order of the file."""
    for node in ast.parse(SOURCE.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and any(ast.unparse(mark) == "hookspec" for mark in node.decorator_list):
            yield node


def signature(function: ast.FunctionDef) -> str:
    """A signature as one would write it."""
    assert function.returns is not None
    return f"def {function.name}({ast.unparse(function.args)}) -> {ast.unparse(function.returns)}"


def reference() -> str:
    """One section for every hook: name, signature, docstring."""
    return "\n".join(
        f"### `{function.name}`\n\n```text\n{signature(function)}\n```\n\n{ast.get_docstring(function)}\n"
        for function in specifications()
    )


def page() -> str:
    """The page with its reference as it must be."""
    text = PAGE.read_text(encoding="utf-8")
    return re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n\n{reference()}\n{END}", text, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
