"""Write the references in `hooks.md`, `parts.md` and `reference.md`: `python docs/plugins/make.py`.

A test keeps them current.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import rlplug_core

HERE = Path(__file__).resolve().parent
PAGE = HERE / "hooks.md"
PARTS = HERE / "parts.md"
CORE = HERE.parents[1] / "rlplug-core" / "src" / "rlplug_core"
API = HERE / "reference.md"
SOURCE = CORE / "plugins" / "hook_specs.py"
BEGIN = "<!-- reference: from rlplug_core/plugins/hook_specs.py -->"
END = "<!-- reference: end -->"
FIRST = "<!-- parts: from rlplug_core -->"
LAST = "<!-- parts: end -->"
#: The classes that authors inherit from: heading, module, name.
AUTHORED = (
    ("Algorithm", "algorithm", "Algorithm"),
    ("Memory", "nets.recurrent", "Memory"),
)
#: Protocols of methods that learners and agents may have.
ABILITIES = ("SupportsFinish", "SupportsEvaluationRank", "SupportsExport")
#: The most characters of a default; longer ones are shown as `…`.
LONGEST_DEFAULT = 24
#: Methods that runners and checkpoints call.
OF_RUNNERS = {
    "update",
    "get_extra_state",
    "set_extra_state",
    "describe_gradients",
    "how_gradients_came",
}
#: The heading of each folder or module of parts, in the order of the page.
HEADINGS = {
    "algorithm": "The base of algorithms",
    "context": "The base of algorithms",
    "config": "Options",
    "batches": "Batches",
    "arrays": "Batches",
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
            return cells(f"{name}{arguments(getattr(rlplug_core, name))}", about)
    return cells(name, remark(module, name))


def cells(name: str, about: str) -> str:
    summary = " ".join(about.split()).replace("|", "\\|")
    return f"| `{name}` | {summary} |"


def arguments(found: Callable[..., object]) -> str:
    """Return the arguments in brackets with the defaults of optional ones, or "" for a class that is not called."""
    try:
        parameters = list(inspect.signature(found).parameters.values())
    except ValueError:  # an exception of Python, or a type
        return ""
    if [one.name for one in parameters] == ["args", "kwargs"]:
        return ""
    names = [argument(one) for one in parameters if one.name != "self"]
    by_name = [one.kind is one.KEYWORD_ONLY for one in parameters]
    if any(by_name):
        names.insert(by_name.index(True) - len(by_name), "*")
    return f"({', '.join(names)})"


def argument(parameter: inspect.Parameter) -> str:
    """Return an argument, with its default if it is optional: `…` for long ones."""
    if parameter.default is parameter.empty:
        return str(parameter.replace(annotation=parameter.empty))
    default = getattr(parameter.default, "__name__", None) or repr(parameter.default)
    short = len(default) <= LONGEST_DEFAULT and default != "<factory>"
    return f"{parameter.name}={default if short else '…'}"


def remark(module: str, name: str) -> str:
    """Return the comment above a type or a constant."""
    for source in sources(module):
        found = re.search(rf"((?:^#:.*\n)+){name}\b.*=", source, re.MULTILINE)
        if found:
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


def class_named(module: str, name: str) -> ast.ClassDef:
    """Return the definition of a class."""
    for source in sources(module):
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                return node
    raise LookupError(f"{module} has no class {name}")


def class_object(module: str, name: str) -> type:
    """Return a class of rlplug_core."""
    found: type = getattr(importlib.import_module(f"rlplug_core.{module}"), name)
    return found


def rows_to_write(module: str, name: str) -> list[str]:
    """Return rows of the members to write in a class: commented class attributes, then methods without a default."""
    found = class_named(module, name)
    (text,) = [one for one in sources(module) if f"class {name}(" in one]
    fields = [node for node in found.body if isinstance(node, ast.AnnAssign)]
    rows = []
    for node in fields:
        comment = re.search(rf"((?:^ +#:.*\n)+) +{ast.unparse(node.target)}:", text, re.MULTILINE)
        if comment:
            rows.append(cells(ast.unparse(node.target), comment[1].replace("#:", "")))
    owner = class_object(module, name)
    return rows + [method(owner, node) for node in methods(found) if lacks_default(node)]


def rows_to_call(module: str, name: str) -> list[str]:
    """Return rows of the methods that an author calls."""
    owner = class_object(module, name)
    return [
        method(owner, node)
        for node in methods(class_named(module, name))
        if not lacks_default(node) and node.name not in OF_RUNNERS
    ]


def rows_to_read(module: str, name: str) -> list[str]:
    """Return rows of the attributes that a class describes in its docstring."""
    about = ast.get_docstring(class_named(module, name)) or ""
    described = about.partition("Attributes:\n")[2].partition("\n\n")[0]
    rows = re.findall(r"^    (\w[\w, ]*): ((?:.|\n        )*)", described, re.MULTILINE)
    return [cells(attribute, text) for attribute, text in rows]


def methods(found: ast.ClassDef) -> list[ast.FunctionDef]:
    """Return the public methods of a class that are not properties."""
    return [
        node
        for node in found.body
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        and not any("property" in ast.unparse(mark) for mark in node.decorator_list)
    ]


def lacks_default(node: ast.FunctionDef) -> bool:
    """Return whether a method only raises an error that a subclass has to define it."""
    last = node.body[-1]
    return isinstance(last, ast.Raise) and len(node.body) <= 2


def method(owner: type, node: ast.FunctionDef) -> str:
    """Return a row: the method with its arguments, and the first paragraph of its docstring."""
    about = (ast.get_docstring(node) or "").partition("\n\n")[0]
    return cells(f"{node.name}{arguments(getattr(owner, node.name))}", about)


def table(title: str, rows: list[str]) -> str:
    """Return a table under a heading."""
    return f"### {title}\n\n| name | |\n|---|---|\n" + "\n".join(rows) + "\n"


def api() -> str:
    """Return the reference for authors: the members to write, to call and to read."""
    sections = []
    for heading, module, name in AUTHORED:
        own = [
            table(title, rows)
            for title, rows in (
                ("Write these", rows_to_write(module, name)),
                ("Call these", rows_to_call(module, name)),
                ("Read these", rows_to_read(module, name)),
            )
            if rows
        ]
        sections.append(f"## {heading}\n\n" + "\n".join(own))
    abilities = [
        method(class_object("protocols", name), node)
        for name in ABILITIES
        for node in methods(class_named("protocols", name))
    ]
    sections.insert(
        1, f"## Methods that you may add\n\n{table('Write these if you need them', abilities)}"
    )
    data = [(name, rows_to_read("batches", name)) for name in ("Rollout", "Transitions")]
    sections.append("## Batches\n\n" + "\n".join(table(f"`{name}`", rows) for name, rows in data))
    return "\n".join(sections)


def page_of_api() -> str:
    """Return the text of `reference.md` with current tables."""
    text = API.read_text(encoding="utf-8")
    return re.sub(
        f"{FIRST}.*{LAST}", lambda _: f"{FIRST}\n\n{api()}\n{LAST}", text, flags=re.DOTALL
    )


if __name__ == "__main__":
    API.write_text(page_of_api(), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
    PARTS.write_text(page_of_parts(), encoding="utf-8")
