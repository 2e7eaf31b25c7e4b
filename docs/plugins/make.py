"""Write the references in `hooks.md` and `parts.md`: `python docs/plugins/make.py`. A test keeps them current."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE / "hooks.md"
PARTS = HERE / "parts.md"
CORE = HERE.parents[1] / "rlplug-core" / "src" / "rlplug_core"
SOURCE = CORE / "plugins" / "hook_specs.py"
BEGIN = "<!-- reference: from rlplug_core/plugins/hook_specs.py -->"
END = "<!-- reference: end -->"
FIRST = "<!-- parts: from rlplug_core -->"
LAST = "<!-- parts: end -->"
#: The heading of each folder or module of parts, in the order of the page.
HEADINGS = {
    "algorithm": "The base of algorithms",
    "context": "The base of algorithms",
    "config": "Options",
    "batches": "Batches",
    "learner_dataset": "Batches",
    "acting": "Agents",
    "buffers": "Buffers",
    "nets": "Networks and heads",
    "learning": "Losses, estimators, optimizers",
    "loop": "Populations",
    "types": "Data of environments, agents and buffers",
    "protocols": "Protocols",
    "clock": "Clock and seeds",
    "seeds": "Clock and seeds",
    "plugins": "Wrappers and hooks",
    "runs": "Runs",
    "errors": "Errors",
}


def specifications() -> Iterator[ast.FunctionDef]:
    """Yield the functions marked as hook specifications, in the order of the file."""
    for node in ast.parse(SOURCE.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and any(
            ast.unparse(mark) == "hookspec" for mark in node.decorator_list
        ):
            yield node


def signature(function: ast.FunctionDef) -> str:
    """Return the signature of a function as source code."""
    assert function.returns is not None
    return f"def {function.name}({ast.unparse(function.args)}) -> {ast.unparse(function.returns)}"


def reference() -> str:
    """Return one section per hook: name, signature, docstring."""
    return "\n".join(
        f"### `{function.name}`\n\n```text\n{signature(function)}\n```\n\n{ast.get_docstring(function)}\n"
        for function in specifications()
    )


def page() -> str:
    """Return the text of `hooks.md` with a current reference."""
    text = PAGE.read_text(encoding="utf-8")
    return re.sub(
        f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n\n{reference()}\n{END}", text, flags=re.DOTALL
    )


def modules() -> Mapping[str, list[str]]:
    """Return the public names of `rlplug_core`, by the modules that define them."""
    names: dict[str, list[str]] = {}
    for node in ast.parse((CORE / "__init__.pyi").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            module = str(node.module).removeprefix("rlplug_core.")
            names.setdefault(module, []).extend(alias.name for alias in node.names)
    return {module: sorted(names[module]) for module in sorted(names)}


def sources(module: str) -> list[str]:
    """Return the source of a module, or the sources of a package."""
    place = CORE.joinpath(*module.split("."))
    files = sorted(place.glob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
    return [file.read_text(encoding="utf-8") for file in files]


def row(module: str, name: str) -> str:
    """Return a table row: the part with its arguments, and the first paragraph of its docstring."""
    for node in (node for source in sources(module) for node in ast.parse(source).body):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            about = (ast.get_docstring(node) or "").partition("\n\n")[0]
            return cells(f"{name}{arguments(node)}", about)
    return cells(name, remark(module, name))


def cells(name: str, about: str) -> str:
    summary = " ".join(about.split()).replace("|", "\\|")
    return f"| `{name}` | {summary} |"


def arguments(found: ast.ClassDef | ast.FunctionDef) -> str:
    """Return the names of the arguments in brackets, or "" for a class that is not called."""
    body = found.body if isinstance(found, ast.ClassDef) else [found]
    makes = [
        node
        for node in body
        if isinstance(node, ast.FunctionDef) and node.name in ("__init__", found.name)
    ]
    if makes:
        given = makes[0].args
        names = [
            one.arg for one in (*given.posonlyargs, *given.args) if one.arg not in ("self", "cls")
        ]
        names += ["*", *(one.arg for one in given.kwonlyargs)] if given.kwonlyargs else []
    elif any("dataclass" in ast.unparse(mark) for mark in found.decorator_list):
        fields = [node for node in body if isinstance(node, ast.AnnAssign)]
        held = [ast.unparse(node.target) for node in fields if "ClassVar" not in ast.unparse(node)]
        names = ["*" if name == "_" else name for name in held]
    else:
        return ""
    return f"({', '.join(names)})"


def remark(module: str, name: str) -> str:
    """Return the comment above a type or a constant."""
    for source in sources(module):
        if found := re.search(rf"((?:^#:.*\n)+){name}\b.*=", source, re.MULTILINE):
            return found[1].replace("#:", "")
    raise LookupError(f"{module}.{name} has no comment above it")


def parts() -> str:
    """Return one table per heading."""
    tables: dict[str, list[str]] = {heading: [] for heading in HEADINGS.values()}
    for module, names in modules().items():
        tables[HEADINGS[module.partition(".")[0]]] += [row(module, name) for name in names]
    return "\n".join(
        f"## {name}\n\n| part | |\n|---|---|\n" + "\n".join(rows) + "\n"
        for name, rows in tables.items()
    )


def page_of_parts() -> str:
    """Return the text of `parts.md` with current tables."""
    text = PARTS.read_text(encoding="utf-8")
    return re.sub(
        f"{FIRST}.*{LAST}", lambda _: f"{FIRST}\n\n{parts()}\n{LAST}", text, flags=re.DOTALL
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    PARTS.write_text(page_of_parts(), encoding="utf-8")
