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

#: The rooms of rlplug_core: each imports only from those before it. The first is the vocabulary.
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

#: The only file that imports the fast room, when it is first needed.
DOOR = "accelerator"

#: The files that import a later room, when it is first needed.
DOORS = {(DOOR, "fast"), ("named_parts", "plugins")}

#: Distributions that are imported under another name.
IMPORTED_AS = {"pil": "pillow"}

#: The packages that each may import; the command line finds algorithms and environments only by entry points.
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


def imports_of(node: ast.AST, typing_too: bool) -> Iterator[str]:
    """Yield the absolute names that code imports; with `typing_too` also those for type checkers."""
    for child in ast.iter_child_nodes(node):
        if not typing_too and isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"line {child.lineno}: imports are absolute"
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        yield from imports_of(child, typing_too)


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Return all nodes of a file, the module first. Cached, as many tests read each file."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@cache
def imports(path: Path, typing_too: bool = False) -> set[str]:
    return set(imports_of(nodes(path)[0], typing_too))


def unit(name: str) -> str | None:
    """`rlplug_core.buffers.rollout` -> `buffers`; None outside rlplug_core."""
    package, _, rest = name.partition(".")
    return rest.partition(".")[0] if package == "rlplug_core" and rest else None


def test_every_part_of_core_is_in_a_room() -> None:
    parts = {unit(dotted(path, "rlplug-core")) for path in modules("rlplug-core")} - {None}
    assert sorted(part for room in ROOMS for part in room) == sorted(parts)  # type: ignore[type-var]


def test_rooms_import_only_earlier_rooms() -> None:
    """Imports under `TYPE_CHECKING` count, too."""
    height = {part: number for number, room in enumerate(ROOMS) for part in room}
    wrong = [f"{importer} imports {part}" for importer, part in edges() if height[part] > height[importer]]
    assert not wrong, wrong


def test_fast_is_imported_by_one_file() -> None:
    importers = set()
    for package in PACKAGES:
        for path in modules(package):
            inside = unit(dotted(path, package)) == "fast"
            if not inside and any(unit(name) == "fast" for name in imports(path, typing_too=True)):
                importers.add(path.stem)
    assert importers == {DOOR}


def test_plain_code_does_not_ask_for_the_type_of_arrays() -> None:
    """Only storage and agents get arrays as well as tensors."""
    kinds = re.compile(r"isinstance\([^)]*(?:np\.ndarray|FastTensor)")
    found = []
    for path in modules("rlplug-core"):
        if unit(dotted(path, "rlplug-core")) in {"nets", "learning", "batches", "algorithm"}:
            found += [path.name for _ in kinds.findall(path.read_text(encoding="utf-8"))]
    assert not found


def test_stations_of_the_data_flow_import_only_protocols() -> None:
    assert not [f"{importer} imports {part}" for importer, part in edges() if {importer, part} <= STATIONS]


def edges() -> set[tuple[str, str]]:
    """Return pairs of parts of core that import one another, without the lazy facade."""
    found = set()
    for path in modules("rlplug-core"):
        importer = unit(dotted(path, "rlplug-core"))
        for part in map(unit, imports(path, typing_too=True)):
            if importer and part and part != importer and (importer, part) not in DOORS:
                found.add((importer, part))
    return found


def test_rooms_have_docstrings() -> None:
    for room in SOURCES["rlplug-core"].iterdir():
        if room.is_dir() and room.name not in ("__pycache__", "index"):
            assert ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8"))), room.name


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_have_no_cycles(package: str) -> None:
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


#: The number of modules of rlplug_core that rlplug-cli imports. It only falls.
CORE_MODULES_OF_CLI = 12


def test_command_line_imports_few_modules_of_core() -> None:
    modules = imported_by_cli(ROOT)
    assert len(modules) <= CORE_MODULES_OF_CLI, sorted(modules)


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_only_core(package: str) -> None:
    for path in modules(package):
        siblings = {name.partition(".")[0] for name in imports(path) if name.startswith("rlplug_")}
        assert siblings <= ALLOWED[package], path.relative_to(ROOT)


def test_algorithm_files_have_at_most_150_lines() -> None:
    """Comments, docstrings and empty lines do not count."""
    long = []
    for path in modules("rlplug-algos"):
        lines = code_lines(path.read_text(encoding="utf-8"))
        if lines > 150:
            long.append(f"{path.name} has {lines}; what it lacks belongs in core")
    assert not long, long


#: The numbers of functions and files above their limit. They only fall.
LONG_FUNCTIONS = 10
LONG_FILES = 0


def code_lines(text: str) -> int:
    """Count lines with code, without empty lines, comments and docstrings; a signature counts as one."""
    free: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            free.update(range(node.lineno + 1, node.body[0].lineno))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            free.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(bool(line.strip()) and not line.strip().startswith("#") and n not in free for n, line in lines)


def test_functions_are_short() -> None:
    """A body has at most 25 lines."""
    long = []
    for package in PACKAGES:
        for path in modules(package):
            for node in nodes(path):
                if isinstance(node, ast.FunctionDef) and body_lines(node) > 25:
                    long.append(f"{path.name}: {node.name} has {body_lines(node)} lines")
    assert len(long) <= LONG_FUNCTIONS, long


def body_lines(function: ast.FunctionDef) -> int:
    """Count the lines of the body without the docstring."""
    body = function.body[1:] if ast.get_docstring(function, clean=False) else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_long_signatures_have_one_parameter_per_line() -> None:
    """`ruff format` would put a signature of more than 79 columns on one or two lines."""
    packed = []
    for path in (path for package in PACKAGES for path in modules(package)):
        lines = path.read_text(encoding="utf-8").splitlines()
        for node in nodes(path):
            if not isinstance(node, ast.FunctionDef):
                continue
            rows = [arg.lineno for arg in ast.iter_child_nodes(node.args) if isinstance(arg, ast.arg)]
            first = re.sub(r"(?<=:)\s+(#|\.\.\.).*", "", lines[node.lineno - 1])
            wide = len(first) > 79 and not first.endswith("(")
            several = wide or (bool(rows) and rows[0] != node.lineno)
            if several and len(rows) > 1 and len(set(rows)) < len(rows):
                packed.append(f"{path.name}: {node.name}")
    assert not packed, packed


def test_files_have_at_most_400_lines() -> None:
    paths = [path for package in PACKAGES for path in modules(package)]
    long = [path.name for path in paths if len(path.read_text(encoding="utf-8").splitlines()) > 400]
    assert len(long) <= LONG_FILES, long


#: Calls that pass more than five arguments by position: calls of every step, as names cost 1.5 us, and foreign ones.
POSITIONAL = {
    "batches.Samples",
    "actor.Step",
    "transform.Timestep",
    "matmul.torch.ops.mkldnn._linear_pointwise",
    "update_rules.self.fused",
    *("heads.loops.categorical", "heads.loops.gaussian", "closed_forms.loops.clipped_product"),
    *("kernels.loops.adam", "memory.self.forward_step", "memory.self.backward_step"),
    *("dense_pass.self.loops.backward", "parallel.dense.backward", "parallel._add"),
}


@pytest.mark.parametrize("package", PACKAGES)
def test_long_calls_name_their_arguments(package: str) -> None:
    found = []
    for path in modules(package):
        calls = [node for node in nodes(path) if isinstance(node, ast.Call)]
        found += [f"{path.stem}.{ast.unparse(call.func)}" for call in calls if len(call.args) > 5]
    assert set(found) <= POSITIONAL, set(found) - POSITIONAL


@pytest.mark.parametrize("package", PACKAGES)
def test_modules_have_docstrings(package: str) -> None:
    for path in modules(package):
        text = path.read_text(encoding="utf-8")
        assert not text or ast.get_docstring(ast.parse(text)), path.relative_to(ROOT)


#: Upper bounds on counts of `bench/plainness.py`. Lower one when you have brought its count down; raise none.
PLAINNESS = {
    "dialect docs per 10k": 7,
    "dialect source per 10k": 4,
    "dialect tests per 10k": 7,
    "participle functions of tests %": 0.9,
    "tuple assignments of tests per 1k": 2.7,
    "fmt: skip of tests": 155,
    "dialect scripts per 10k": 4,
    "participle functions of scripts %": 1.6,
    "tuple assignments of scripts per 1k": 0.3,
    "fmt: skip of scripts": 0,
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


#: First words that make a docstring a fragment of a sentence.
FRAGMENTS = {"As", "How", "Of", "What", "When", "Where", "Whether", "Which", "Whoever", "Whose", "Why"}


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_start_with_a_verb_or_a_noun(package: str) -> None:
    fragments = []
    for path in modules(package):
        for node in nodes(path):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                first = (ast.get_docstring(node) or "").partition(" ")[0]
                if first in FRAGMENTS:
                    fragments.append(f"{path.name}: {getattr(node, 'name', 'the module')} starts with {first}")
    assert not fragments, fragments


def test_import_of_core_loads_only_the_standard_library() -> None:
    script = "import sys; before = set(sys.modules); import rlplug_core; print(*set(sys.modules) - before)"
    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    foreign = {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names - {"rlplug_core"}
    assert not foreign


def project(package: str) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / package / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table


#: Packages with only requirements, or data.
WITHOUT_CODE = ("rlplug", "rlplug-zoo")
EXAMPLES = tuple(f"examples/{path.parent.name}" for path in sorted(ROOT.glob("examples/*/pyproject.toml")))


@pytest.mark.parametrize("package", [*WITHOUT_CODE, *PACKAGES, *EXAMPLES])
def test_packages_declare_version_bounds_and_contract(package: str) -> None:
    """Siblings are bounded by the next major version; the contract number says which work together."""
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


def test_command_line_does_not_require_algorithms() -> None:
    """The package rlplug requires them with the extra `all`."""
    names = {Requirement(text).name for text in project("rlplug-cli")["dependencies"]}
    assert not names & {"rlplug-algos", "rlplug-envs"}
    (meta,) = map(Requirement, project("rlplug")["dependencies"])
    extra = project(meta.name)["optional-dependencies"]
    brought = {Requirement(text).name for name in meta.extras for text in extra[name]}
    assert brought == {"rlplug-algos", "rlplug-envs"}


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_are_declared(package: str) -> None:
    """A package must not rely on requirements of another package."""
    table = project(package)
    extras = [requirement for extra in table.get("optional-dependencies", {}).values() for requirement in extra]
    declared = {Requirement(text).name.lower().replace("-", "_") for text in [*table["dependencies"], *extras]}
    names = {name.partition(".")[0].lower() for path in modules(package) for name in imports(path)}
    used = {IMPORTED_AS.get(name, name) for name in names}
    own = {package.replace("-", "_")}
    assert used - sys.stdlib_module_names - own <= declared | {"__future__"}


INDICES = [path for place in ("", "examples/") for path in sorted(ROOT.glob(f"{place}rlplug-*/src/*/index/*.json"))]


def test_index_files_match_their_sources() -> None:
    """Run `rlplug index PLUGIN` after each change, also for the examples."""
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


def test_files_name_no_machine_paths() -> None:
    machine = re.compile(r"(?<![\w.:/])/(?:home|root|work|tmp|opt|mnt|srv|Users)/\w+")
    pages = [*ROOT.glob("*.md"), *ROOT.glob("*.t*"), ROOT / ".ci" / "run", ROOT / "noxfile.py"]
    for folder in (*PACKAGES, "docs", "bench", "examples"):
        pages += [path for kind in ("md", "py", "toml") for path in (ROOT / folder).rglob(f"*.{kind}")]
    for page in pages:
        found = machine.findall(page.read_text(encoding="utf-8"))
        assert not found, f"{page.relative_to(ROOT)} names {found}"
