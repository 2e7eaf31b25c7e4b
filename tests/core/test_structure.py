"""The shape of the code base: one-way imports, short files and functions, light top levels, matching versions."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from bench.plainness import imported_by_cli, measure
from rlplug_core.plugins.index import CONTRACT, digest

ROOT = Path(__file__).parents[2]
PACKAGES = ("rlplug-core", "rlplug-algos", "rlplug-envs", "rlplug-cli")
SOURCES = {package: ROOT / package / "src" / package.replace("-", "_") for package in PACKAGES}

#: The rooms of rlplug_core from the ground up: each imports only from those above it. The first is the vocabulary.
ROOMS = (
    ("conflicts", "doors", "errors", "types", "clock", "processor", "seeds", "accelerator"),
    ("arrays", "batches", "learner_dataset", "protocols"),
    ("config",),
    ("named_parts",),
    ("nets",),
    ("acting",),
    ("buffers",),
    ("learning",),
    ("fast",),
    ("context", "algorithm"),
    ("plugins",),
    ("loop",),
    ("export", "films"),
    ("sharing",),
    ("runs",),
    ("testing",),
)

#: The stations of the data flow; they meet only through the protocols, in the runners.
STATIONS = {"acting", "buffers", "algorithm"}

#: The one file that reaches the fast room, which stands above it: it imports it when it is first needed.
DOOR = "accelerator"

#: The files that reach a room above theirs, when it is first needed.
DOORS = {(DOOR, "fast"), ("named_parts", "plugins")}

#: Distributions that are imported under another name.
IMPORTED_AS = {"pil": "pillow"}

#: Which packages each may import; the command line reaches algorithms and environments through entry points alone.
ALLOWED = {
    "rlplug-core": {"rlplug_core"},
    "rlplug-algos": {"rlplug_core", "rlplug_algos"},
    "rlplug-envs": {"rlplug_core", "rlplug_envs"},
    "rlplug-cli": {"rlplug_core", "rlplug_cli"},
}


def modules(package: str) -> list[Path]:
    return sorted(SOURCES[package].rglob("*.py"))


def dotted(path: Path, package: str) -> str:
    parts = path.relative_to(SOURCES[package].parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(node: ast.AST, typing_too: bool) -> Iterator[str]:
    """The absolute names that code imports anywhere, those for type checkers alone only if asked."""
    for child in ast.iter_child_nodes(node):
        if not typing_too and isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"line {child.lineno}: imports are absolute"
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        yield from imported(child, typing_too)


@cache
def nodes(path: Path) -> list[ast.AST]:
    """All nodes of a file, the module first. Many tests read each file, so it is parsed once."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@cache
def imports(path: Path, typing_too: bool = False) -> set[str]:
    return set(imported(nodes(path)[0], typing_too))


def unit(name: str) -> str | None:
    """`rlplug_core.buffers.rollout` -> `buffers`; None for what lies outside rlplug_core."""
    package, _, rest = name.partition(".")
    return rest.partition(".")[0] if package == "rlplug_core" and rest else None


def test_every_part_of_core_is_in_a_room() -> None:
    parts = {unit(dotted(path, "rlplug-core")) for path in modules("rlplug-core")} - {None}
    assert sorted(part for room in ROOMS for part in room) == sorted(parts)  # type: ignore[type-var]


def test_a_room_imports_only_rooms_before_it() -> None:
    """For type checkers alone too: a cycle between rooms is not hidden behind `TYPE_CHECKING`."""
    height = {part: number for number, room in enumerate(ROOMS) for part in room}
    wrong = [f"{importer} imports {part}" for importer, part in edges() if height[part] > height[importer]]
    assert not wrong, wrong


def test_the_fast_room_has_one_door() -> None:
    importers = set()
    for package in PACKAGES:
        for path in modules(package):
            inside = unit(dotted(path, package)) == "fast"
            if not inside and any(unit(name) == "fast" for name in imports(path, typing_too=True)):
                importers.add(path.stem)
    assert importers == {DOOR}


def test_plain_code_never_asks_what_it_was_given() -> None:
    """`Tensor` means torch's. Only storage and agents, which get either, tell arrays from tensors."""
    kinds = re.compile(r"isinstance\([^)]*(?:np\.ndarray|FastTensor)")
    found = []
    for path in modules("rlplug-core"):
        if unit(dotted(path, "rlplug-core")) in {"nets", "learning", "batches", "algorithm"}:
            found += [path.name for _ in kinds.findall(path.read_text(encoding="utf-8"))]
    assert not found


def test_the_stations_of_the_data_flow_know_only_the_protocols() -> None:
    assert not [f"{importer} imports {part}" for importer, part in edges() if {importer, part} <= STATIONS]


def edges() -> set[tuple[str, str]]:
    """Which part of core imports which other part; the package's own top level, a lazy facade, excepted."""
    found = set()
    for path in modules("rlplug-core"):
        importer = unit(dotted(path, "rlplug-core"))
        for part in map(unit, imports(path, typing_too=True)):
            if importer and part and part != importer and (importer, part) not in DOORS:
                found.add((importer, part))
    return found


def test_every_room_says_what_lives_there() -> None:
    for room in SOURCES["rlplug-core"].iterdir():
        if room.is_dir() and room.name not in ("__pycache__", "index"):
            assert ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8"))), room.name


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_imports_itself_through_others(package: str) -> None:
    known = {dotted(path, package): path for path in modules(package)}
    graph = {}
    for name, path in known.items():
        found = {target if target in known else target.rpartition(".")[0] for target in imports(path)}
        if unit(name) == DOOR:
            found = {target for target in found if unit(target) != "fast"}
        graph[name] = (found & known.keys()) - {name, name.partition(".")[0]}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"modules import each other in a circle: {' <- '.join(error.args[1])}")


#: Modules of rlplug_core that rlplug-cli imports from: doors of rooms, and a little vocabulary. The number only falls.
CORE_MODULES_OF_CLI = 12


def test_the_command_line_enters_core_by_the_doors_of_its_rooms() -> None:
    modules = imported_by_cli(ROOT)
    assert len(modules) <= CORE_MODULES_OF_CLI, sorted(modules)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_no_sibling_but_core(package: str) -> None:
    for path in modules(package):
        siblings = {name.partition(".")[0] for name in imports(path) if name.startswith("rlplug_")}
        assert siblings <= ALLOWED[package], path.relative_to(ROOT)


def test_an_algorithm_file_fits_150_lines() -> None:
    """Lines of code: a comment, a docstring or an empty line costs nothing."""
    long = []
    for path in modules("rlplug-algos"):
        lines = code_lines(path.read_text(encoding="utf-8"))
        if lines > 150:
            long.append(f"{path.name} has {lines}; what it lacks belongs in core")
    assert not long, long


#: Functions and files above their limit today; the numbers only fall.
LONG_FUNCTIONS = 10
LONG_FILES = 0


def code_lines(text: str) -> int:
    """Lines with code: no empty lines, comments or docstrings; a signature counts as one."""
    free: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            free.update(range(node.lineno + 1, node.body[0].lineno))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            free.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(bool(line.strip()) and not line.strip().startswith("#") and n not in free for n, line in lines)


def test_functions_are_short() -> None:
    """A body of 25 lines reads top to bottom; more is a second subject."""
    long = []
    for package in PACKAGES:
        for path in modules(package):
            for node in nodes(path):
                if isinstance(node, ast.FunctionDef) and body_lines(node) > 25:
                    long.append(f"{path.name}: {node.name} has {body_lines(node)} lines")
    assert len(long) <= LONG_FUNCTIONS, long


def body_lines(function: ast.FunctionDef) -> int:
    """The lines of the body, without the docstring."""
    body = function.body[1:] if ast.get_docstring(function, clean=False) else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_a_long_signature_has_a_line_for_each_parameter() -> None:
    """A signature of more than 79 columns, which `ruff format` would put on one or two lines."""
    packed = []
    for path in (path for package in PACKAGES for path in modules(package)):
        lines = path.read_text(encoding="utf-8").splitlines()
        for node in nodes(path):
            if not isinstance(node, ast.FunctionDef):
                continue
            rows = [one.lineno for one in ast.iter_child_nodes(node.args) if isinstance(one, ast.arg)]
            first = re.sub(r"(?<=:)\s+(#|\.\.\.).*", "", lines[node.lineno - 1])
            wide = len(first) > 79 and not first.endswith("(")
            several = wide or (bool(rows) and rows[0] != node.lineno)
            if several and len(rows) > 1 and len(set(rows)) < len(rows):
                packed.append(f"{path.name}: {node.name}")
    assert not packed, packed


def test_a_file_has_400_lines() -> None:
    paths = [path for package in PACKAGES for path in modules(package)]
    long = [path.name for path in paths if len(path.read_text(encoding="utf-8").splitlines()) > 400]
    assert len(long) <= LONG_FILES, long


#: Calls that pass more than five arguments by position: those of every step, where names cost 1.5 us, and foreign ones.
POSITIONAL = {
    "batches.Samples",
    "actor.Step",
    "transform.Timestep",
    "matmul.torch.ops.mkldnn._linear_pointwise",
    "update_rules.self.fused",
    *("heads.loops.categorical", "heads.loops.gaussian", "closed_forms.loops.clipped_product"),
    *("kernels.loops.adam", "memory.self.forward_step", "memory.self.backward_step"),
}


@pytest.mark.parametrize("package", PACKAGES)
def test_long_calls_name_their_arguments(package: str) -> None:
    found = []
    for path in modules(package):
        calls = [node for node in nodes(path) if isinstance(node, ast.Call)]
        found += [f"{path.stem}.{ast.unparse(call.func)}" for call in calls if len(call.args) > 5]
    assert set(found) <= POSITIONAL, set(found) - POSITIONAL


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_says_what_it_is_for(package: str) -> None:
    for path in modules(package):
        text = path.read_text(encoding="utf-8")
        assert not text or ast.get_docstring(ast.parse(text)), path.relative_to(ROOT)


#: Upper bounds on counts of `bench/plainness.py`. Lower one when you have brought its count down; raise none.
PLAINNESS = {
    "dialect docs per 10k": 7,
    "dialect source per 10k": 4,
    "dialect tests per 10k": 237,
    "participle functions of tests %": 5.3,
    "participle functions %": 1.6,
    "tokens per code line": 8.5,
    "tuple assignments per 1k": 1.3,
    "fmt: skip": 0,
    "short one-caller helpers per 1k": 2.9,
    "Any per 1k": 10.5,
    "Any per 1k core": 10,
}


def test_plainness_stays_within_its_budget() -> None:
    counts = measure(ROOT)
    over = [f"{name}: {counts[name]}, budget {most}" for name, most in PLAINNESS.items() if counts[name] > most]
    assert not over, f"{over}; 17 patterns of odd English by number: {counts['most frequent']}; see bench/plainness.py"


#: Words that make a fragment of a sentence where a docstring begins with them.
FRAGMENTS = {"As", "How", "Of", "What", "When", "Where", "Whether", "Which", "Whoever", "Whose", "Why"}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_docstring_begins_with_a_verb_or_a_noun(package: str) -> None:
    fragments = []
    for path in modules(package):
        for node in nodes(path):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                first = (ast.get_docstring(node) or "").partition(" ")[0]
                if first in FRAGMENTS:
                    fragments.append(f"{path.name}: {getattr(node, 'name', 'the module')} begins with {first}")
    assert not fragments, fragments


def test_the_top_level_of_core_is_light() -> None:
    """Importing the package loads nothing beyond the standard library and itself."""
    script = "import sys; before = set(sys.modules); import rlplug_core; print(*set(sys.modules) - before)"
    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    foreign = {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names - {"rlplug_core"}
    assert not foreign


def project(package: str) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / package / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table


#: Packages that bring others, or data.
WITHOUT_CODE = ("rlplug", "rlplug-zoo")
EXAMPLES = tuple(f"examples/{path.parent.name}" for path in sorted(ROOT.glob("examples/*/pyproject.toml")))


@pytest.mark.parametrize("package", [*WITHOUT_CODE, *PACKAGES, *EXAMPLES])
def test_a_package_has_its_own_version_bounds_and_contract(package: str) -> None:
    """Siblings are bounded by the next major version; the number of the contract says what works together."""
    table = project(package)
    for requirement in map(Requirement, table["dependencies"]):
        if requirement.name in PACKAGES:
            here = project(requirement.name)["version"]
            assert requirement.specifier.contains(here), requirement
            assert f"<{int(here.partition('.')[0]) + 1}" in str(requirement.specifier).split(","), requirement
    assert set(table["urls"]) == {"Homepage", "Changelog"}
    assert (ROOT / package / "CHANGELOG.md").is_file()
    declared = table.get("entry-points", {}).get("rlplug.contract", {})
    assert list(declared) == ([] if package in WITHOUT_CODE else [str(CONTRACT)])


def test_the_command_line_does_not_require_algorithms() -> None:
    """The package rlplug brings them, by the extra `all`."""
    names = {Requirement(text).name for text in project("rlplug-cli")["dependencies"]}
    assert not names & {"rlplug-algos", "rlplug-envs"}
    (meta,) = map(Requirement, project("rlplug")["dependencies"])
    extra = project(meta.name)["optional-dependencies"]
    brought = {Requirement(text).name for name in meta.extras for text in extra[name]}
    assert brought == {"rlplug-algos", "rlplug-envs"}


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_are_declared(package: str) -> None:
    """No package leans on what another one happens to bring along."""
    table = project(package)
    extras = [requirement for extra in table.get("optional-dependencies", {}).values() for requirement in extra]
    declared = {Requirement(text).name.lower().replace("-", "_") for text in [*table["dependencies"], *extras]}
    names = {name.partition(".")[0].lower() for path in modules(package) for name in imports(path)}
    used = {IMPORTED_AS.get(name, name) for name in names}
    own = {package.replace("-", "_")}
    assert used - sys.stdlib_module_names - own <= declared | {"__future__"}


INDICES = [path for place in ("", "examples/") for path in sorted(ROOT.glob(f"{place}rlplug-*/src/*/index/*.json"))]


def test_every_index_matches_its_sources() -> None:
    """`rlplug index PLUGIN` was called after the last change, also for the examples."""
    assert len(INDICES) >= 60
    faults = []
    for index in INDICES:
        folders = [*(path.parent for path in SOURCES.values()), index.parents[2]]
        for module, wanted in json.loads(index.read_text(encoding="utf-8"))["modules"].items():
            paths = [folder.joinpath(*module.split(".")).with_suffix(".py") for folder in folders]
            (source,) = {path for path in paths if path.exists()}
            if digest(source) != wanted:
                faults.append(f"{module} is newer than {index.relative_to(ROOT)}")
    assert not faults, faults


def test_nothing_names_a_path_of_one_machine() -> None:
    machine = re.compile(r"(?<![\w.:/])/(?:home|root|work|tmp|opt|mnt|srv|Users)/\w+")
    pages = [*ROOT.glob("*.md"), *ROOT.glob("*.t*"), ROOT / ".ci" / "run", ROOT / "noxfile.py"]
    for folder in (*PACKAGES, "docs", "bench", "examples"):
        pages += [path for kind in ("md", "py", "toml") for path in (ROOT / folder).rglob(f"*.{kind}")]
    for page in pages:
        found = machine.findall(page.read_text(encoding="utf-8"))
        assert not found, f"{page.relative_to(ROOT)} names {found}"
