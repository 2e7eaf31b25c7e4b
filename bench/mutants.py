"""Change one thing in the sources at a time, and see whether a test fails.

    python bench/mutants.py --tree COPY --sample 300 --results mutants.jsonl    # continues where it stopped
    python bench/mutants.py --tree COPY --survivors mutants.jsonl --results more.jsonl --tests tests/algos
    python bench/mutants.py --tree OTHER --before mutants.jsonl --results after.jsonl    # other tests, same sources
    python bench/mutants.py --tree COPY --results mutants.jsonl --check    # do the tests pass without a change?
    python bench/mutants.py --report mutants.jsonl

COPY is a checkout that nobody edits meanwhile, whose packages are installed editable. Each mutant is one file with one
change: a comparison, a number, an operator, a dropped statement, a swapped branch. The tests are those named after
the module and those of `tests/core` that import it. The results name the test that failed; `--before` runs that test
first.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOMS = ("nets", "learning", "buffers", "loop", "runs")
#: Seconds of processor time and of waiting that the tests of one mutant may take; a mutant that loops is killed.
CPU_SECONDS = 60
WALL_SECONDS = 400
#: Test files of one mutant, the nearest first.
MOST_FILES = 4
COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add,
    ast.Pow: ast.Mult,
}


@dataclass(frozen=True)
class Mutant:
    """One change: the place in a file, and the text before and after."""

    path: str
    line: int
    column: int
    kind: str
    before: str
    after: str

    @property
    def key(self) -> str:
        return f"{self.path}:{self.line}:{self.column}:{self.kind}"


def mutants(tree: Path) -> Iterator[Mutant]:
    """Yield every mutant of the rooms, in the order of files and places."""
    source = tree / "rlplug-core" / "src" / "rlplug_core"
    for room in ROOMS:
        for path in sorted((source / room).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            name = path.relative_to(tree).as_posix()
            functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef)]
            nodes = {id(node): node for function in functions for node in inside(function)}
            for parent in nodes.values():
                for node, kind, after in changes(parent):
                    before = ast.get_source_segment(text, node) or ""
                    yield Mutant(name, node.lineno, node.col_offset, kind, before, after)


def inside(function: ast.FunctionDef) -> Iterator[ast.expr | ast.stmt]:
    """Yield the statements and expressions of a body: no docstrings, defaults or annotations."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.expr | ast.stmt):
                yield node


def changes(node: ast.expr | ast.stmt) -> Iterator[tuple[ast.expr | ast.stmt, str, str]]:
    """Yield the changes at a node: the node that is replaced, the kind, and the new text."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        opposite = ast.Compare(node.left, [COMPARISONS[type(node.ops[0])]()], node.comparators)
        yield node, "comparison", f"({ast.unparse(opposite)})"
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        other = ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
        yield node, "operator", f"({ast.unparse(other)})"
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield node, "number", f"({node.value + 1})"
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield node, "boolean", str(not node.value)
    if isinstance(node, ast.AugAssign) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        yield node, "dropped statement", "pass"
    if isinstance(node, ast.If | ast.IfExp):
        yield node.test, "swapped branches", f"(not ({ast.unparse(node.test)}))"


def mutated(text: str, mutant: Mutant) -> str:
    """Return the text of a file with the change made."""
    lines = text.splitlines(keepends=True)
    start = sum(map(len, lines[: mutant.line - 1]))
    line = lines[mutant.line - 1].encode()
    start += len(line[: mutant.column].decode())
    assert text[start:].startswith(mutant.before), mutant.key
    return text[:start] + mutant.after + text[start + len(mutant.before) :]


def tests_of(tree: Path, path: str) -> list[str]:
    """Return the test files that can see a module: named after it, importing it, or importing its importers."""
    near = tests_importing(tree, [path])
    if near:
        return near
    sources = sorted((tree / "rlplug-core" / "src").rglob("*.py"))
    importers = [source for source in sources if imports(source.read_text(encoding="utf-8"), path)]
    return tests_importing(tree, [source.relative_to(tree).as_posix() for source in importers])


def tests_importing(tree: Path, paths: list[str]) -> list[str]:
    """Return the test files named after modules or importing them, the nearest first."""
    stems = {f"test_{Path(path).stem}" for path in paths}
    rooms = {Path(path).parts[3] for path in paths}
    found = []
    for test in sorted((tree / "tests" / "core").rglob("test_*.py")):
        text = test.read_text(encoding="utf-8")
        named = test.stem in stems
        if named or any(imports(text, path) for path in paths):
            found.append((not named, test.parent.name not in rooms, len(text), test))
    return [str(test.relative_to(tree)) for *_, test in sorted(found)][:MOST_FILES]


def imports(text: str, path: str) -> bool:
    """Return whether a source imports the module at `path`."""
    parts = Path(path).with_suffix("").parts
    module = ".".join(parts[parts.index("src") + 1 :]).removesuffix(".__init__")
    package, _, name = module.rpartition(".")
    return (
        f"{module} import" in text
        or re.search(rf"from {package} import .*\b{name}\b", text) is not None
    )


class FirstFailure:
    """A pytest plugin that writes the name of the first test that fails into a pipe."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and self.pipe >= 0:
            os.write(self.pipe, report.nodeid.encode())
            self.pipe = -1


def run(tree: Path, mutant: Mutant, tests: list[str]) -> tuple[str, str]:
    """Make the change, run the tests in a child, undo the change.

    Returns:
        "killed", "survived" or "timeout", and the test that failed first or "".
    """
    path = tree / mutant.path
    text = path.read_text(encoding="utf-8")
    times = path.stat()
    path.write_text(mutated(text, mutant), encoding="utf-8")
    reader, writer = os.pipe()
    os.set_blocking(
        reader, False
    )  # a process that the tests left behind may keep the other end open
    try:
        child = os.fork()
        if child == 0:
            test(tree, tests, writer)
        os.close(writer)
        result = waited(child)
        return result, failed_test(reader) if result == "killed" else ""
    finally:
        os.close(reader)
        path.write_text(text, encoding="utf-8")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def failed_test(pipe: int) -> str:
    """Return what a `FirstFailure` wrote, or "" if the tests could not be collected."""
    try:
        return os.read(pipe, 1000).decode()
    except BlockingIOError:
        return ""


def test(tree: Path, tests: list[str], pipe: int) -> None:
    """Run pytest in this process, which ends with it; the first failure is written to `pipe`."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    os.chdir(tree)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    import pytest

    options = ("-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", "--hypothesis-profile", "ci")
    os._exit(int(pytest.main([*options, *tests], plugins=[FirstFailure(pipe)])))


def killers(tree: Path, row: dict[str, object]) -> list[str]:
    """Return the test that killed a mutant before, if the tree still has it; a table may have joined its cases."""
    file, _, name = str(row.get("killer", "")).partition("[")[0].partition("::")
    path = tree / file
    there = name and path.is_file() and f"def {name.rpartition('::')[2]}(" in path.read_text()
    return [f"{file}::{name}"] if there else []


def passes(tree: Path, tests: list[str]) -> bool:
    """Return whether tests pass without a change."""
    child = os.fork()
    if child == 0:
        test(tree, tests, -1)
    return waited(child) == "survived"


def waited(child: int) -> str:
    """Wait for a child and its limit of time."""
    until = time.monotonic() + WALL_SECONDS
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return "survived" if code == 0 else "timeout" if code < 0 else "killed"
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "timeout"


def read(path: Path | None) -> list[dict[str, object]]:
    """Return the results in a file, or none if there is no file."""
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def report(path: Path) -> None:
    """Print how many mutants of each room were killed, and the survivors."""
    rows = read(path)
    for room in ROOMS:
        found = Counter(str(row["result"]) for row in rows if f"/{room}/" in str(row["path"]))
        print(f"{room:10} {dict(found)}")
    for row in rows:
        if row["result"] == "survived":
            print(f"{row['path']}:{row['line']}: {row['before']!r} -> {row['after']!r}")


def main() -> None:
    """Run a sample, or print the report of one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tree", type=Path)
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--survivors", type=Path, help="only mutants that survived in this file")
    parser.add_argument(
        "--before", type=Path, help="mutants of this file, the test that failed first"
    )
    parser.add_argument("--tests", nargs="+", help="run these instead of the tests of the module")
    parser.add_argument(
        "--check", action="store_true", help="run the tests of all results without a change"
    )
    parser.add_argument("--report", type=Path)
    options = parser.parse_args()
    if options.report:
        return report(options.report)
    tree = options.tree.resolve()
    sample = random.Random(options.seed).sample(list(mutants(tree)), options.sample)
    done = {str(row["key"]) for row in read(options.results)}
    before = {str(row["key"]): row for row in read(options.before)}
    survived = {str(row["key"]) for row in read(options.survivors) if row["result"] == "survived"}
    os.environ |= {"NUMBA_DISABLE_JIT": "1", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode = True
    import gymnasium  # noqa: F401 - once, for all children
    import torch  # noqa: F401

    if options.check:
        selections = {tuple(row["tests"]) for row in read(options.results) if row["tests"]}  # type: ignore[arg-type]
        print(
            [tests for tests in sorted(selections) if not passes(tree, list(tests))]
            or "all tests pass"
        )
        return
    for mutant in sample:
        if mutant.key in done or (options.survivors and mutant.key not in survived):
            continue
        started = time.monotonic()
        tests = killers(tree, before.get(mutant.key, {}))
        result, killer = run(tree, mutant, tests) if tests else ("survived", "")
        if result == "survived":
            tests = options.tests or tests_of(tree, mutant.path)
            result, killer = run(tree, mutant, tests) if tests else ("no tests", "")
        row = {"key": mutant.key, **asdict(mutant), "result": result, "tests": tests}
        row["killer"] = killer
        row["seconds"] = round(time.monotonic() - started, 1)
        with options.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
