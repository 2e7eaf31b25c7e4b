"""Test with mutations: make one change in the sources at a time, and check if a test fails.

    python bench/mutants.py --tree COPY --results mutants.jsonl --sample 300    # continues after an interruption
    python bench/mutants.py --tree COPY --results more.jsonl --survivors mutants.jsonl --tests tests/core
    python bench/mutants.py --report mutants.jsonl

COPY is a checkout with editable installations of its packages. Do not edit it during the run. A mutant is one
change of one file: a comparison, a number, an operator, a dropped statement, a swapped branch.

One process imports and collects the tests, and forks for each mutant. In the fork the function has the changed code.
The fork runs the tests that are named after the module or import it, first those that name the function, and stops at
the first failure. The file is changed as well, for processes that tests start.
"""

from __future__ import annotations

import argparse
import ast
import gc
import json
import os
import random
import re
import resource
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

ROOMS = ("nets", "learning", "buffers", "loop", "runs")
#: Seconds of processor time and of wall time for the tests of one mutant; a mutant with an endless loop is killed.
CPU_SECONDS = 20
WALL_SECONDS = 600
#: Test files of one mutant, the nearest first.
MOST_FILES = 4
MOST_TESTS = 60
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
            nodes = {id(node): node for function in functions for node in body_nodes(function)}
            for parent in nodes.values():
                for node, kind, after in changes(parent):
                    before = ast.get_source_segment(text, node) or ""
                    yield Mutant(name, node.lineno, node.col_offset, kind, before, after)


def body_nodes(function: ast.FunctionDef) -> Iterator[ast.expr | ast.stmt]:
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
        yield node, "dropped statement", f"if 0: {ast.unparse(node)}"
    if isinstance(node, ast.If | ast.IfExp):
        yield node.test, "swapped branches", f"(not ({ast.unparse(node.test)}))"


def apply_mutant(text: str, mutant: Mutant) -> str:
    """Return the text of a file with the change."""
    lines = text.splitlines(keepends=True)
    start = sum(map(len, lines[: mutant.line - 1]))
    line = lines[mutant.line - 1].encode()
    start += len(line[: mutant.column].decode())
    assert text[start:].startswith(mutant.before), mutant.key
    return text[:start] + mutant.after + text[start + len(mutant.before) :]


def test_files_of(tree: Path, path: str) -> list[str]:
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


def functions_by_code(source: str) -> dict[tuple[str, str, int], list[FunctionType]]:
    """Return the functions of the rooms that are in memory, by file, name and line."""
    found = defaultdict(list)
    gc.unfreeze()  # the tests freeze imported objects, and frozen objects are not listed
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename.startswith(source):
            code = each.__code__
            found[code.co_filename, code.co_qualname, code.co_firstlineno].append(each)
    if not found:
        raise RuntimeError(f"the tests imported nothing from {source}")
    return found


def codes_of(module: CodeType) -> Iterator[CodeType]:
    """Yield the code of all functions of a module."""
    for constant in module.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from codes_of(constant)


class Mutations:
    """A pytest plugin that runs some of the collected tests for each mutant, instead of all once."""

    def __init__(self, tree: Path, sample: list[Mutant], results: Path) -> None:
        self.tree = tree
        self.sample = sample
        self.results = results
        #: In the fork of a mutant, the pipe that takes the name of the first test that fails.
        self.pipe = -1

    def pytest_runtestloop(self, session: Any) -> bool:
        self.items: dict[str, list[Any]] = defaultdict(list)
        for item in session.items:
            self.items[item.nodeid.partition("::")[0]].append(item)
        self.functions = functions_by_code(str(self.tree / "rlplug-core"))
        gc.freeze()
        for mutant in self.sample:
            self.judge(mutant)
        return True

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and self.pipe >= 0:
            os.write(self.pipe, report.nodeid.encode())
            os._exit(1)

    def tests_of(self, mutant: Mutant) -> list[Any]:
        """Return the tests that can see a change; first those that name the changed function or its class."""
        text = (self.tree / mutant.path).read_text(encoding="utf-8")
        names = set(function_at(text, mutant.line).split(".")) - {"__init__"}
        files = test_files_of(self.tree, mutant.path)
        found = [item for path in files for item in self.items.get(path, ())]
        found.sort(key=lambda item: not names & set(item.function.__code__.co_names))
        return found[:MOST_TESTS]

    def judge(self, mutant: Mutant) -> None:
        """Run the tests of a mutant; append a row to the results."""
        started = time.monotonic()
        tests = self.tests_of(mutant)
        result, killer = self.run(mutant, tests) if tests else ("no tests", "")
        row = {"key": mutant.key, **asdict(mutant), "result": result, "tests": len(tests)}
        row |= {"killer": killer, "seconds": round(time.monotonic() - started, 1)}
        with self.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def run(self, mutant: Mutant, tests: list[Any]) -> tuple[str, str]:
        """Make the change, run the tests in a fork, undo the change.

        Returns:
            "killed", "survived", "timeout" or "broken" (no test could run), and the test that failed or "".
        """
        path = self.tree / mutant.path
        text = path.read_text(encoding="utf-8")
        times = path.stat()
        reader, self.pipe = os.pipe()
        os.set_blocking(
            reader, False
        )  # a process that outlives its test may keep the other end open
        try:
            path.write_text(apply_mutant(text, mutant), encoding="utf-8")
            result = in_fork(lambda: self.run_tests(path, tests))
            killer = read_name(reader)
            return "broken" if result == "killed" and not killer else result, killer
        finally:
            path.write_text(text, encoding="utf-8")
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            os.close(reader)
            os.close(self.pipe)
            self.pipe = -1

    def run_tests(self, path: Path, items: list[Any]) -> None:
        """Give functions in memory the code of the changed file, and run tests."""
        for code in codes_of(compile(path.read_text(encoding="utf-8"), str(path), "exec")):
            name = (str(path), code.co_qualname, code.co_firstlineno)
            for function in self.functions.get(name, ()):
                if len(code.co_freevars) == len(function.__code__.co_freevars):
                    function.__code__ = code
        items[0].config.pluginmanager.unregister(name="terminalreporter")
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


def function_at(text: str, line: int) -> str:
    """Return the qualified name of the outermost function around a line."""

    def search(nodes: list[ast.stmt], prefix: str) -> str:
        for node in nodes:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and (
                node.lineno <= line <= (node.end_lineno or 0)
            ):
                name = prefix + node.name
                return search(node.body, f"{name}.") if isinstance(node, ast.ClassDef) else name
        return ""

    return search(ast.parse(text).body, "")


def in_fork(work: Callable[[], None]) -> str:
    """Do work in a fork; return "killed" if it exits with an error, otherwise "survived" or "timeout"."""
    child = os.fork()
    if child == 0:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    until = time.monotonic() + WALL_SECONDS
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            if code < 0:
                return "timeout"
            return "killed" if code else "survived"
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "timeout"


def read_name(pipe: int) -> str:
    """Return the name in a pipe, or "" if nothing was written."""
    try:
        return os.read(pipe, 1000).decode()
    except BlockingIOError:
        return ""


def read(path: Path | None) -> list[dict[str, object]]:
    """Return the results in a file, or an empty list if the file does not exist."""
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
        if row["result"] in ("survived", "no tests"):
            print(
                f"{row['result']} {row['path']}:{row['line']}: {row['before']!r} -> {row['after']!r}"
            )


def main() -> None:
    """Run a sample, or print the report of one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tree", type=Path)
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--survivors", type=Path, help="only mutants that survived in this file")
    parser.add_argument("--tests", nargs="+", default=["tests/core"])
    parser.add_argument("--report", type=Path)
    options = parser.parse_args()
    if options.report:
        return report(options.report)
    os.environ |= {"NUMBA_DISABLE_JIT": "1", "OMP_NUM_THREADS": "1"}
    tree = options.tree.resolve()
    sample = random.Random(options.seed).sample(list(mutants(tree)), options.sample)
    done = {str(row["key"]) for row in read(options.results)}
    survived = {str(row["key"]) for row in read(options.survivors) if row["result"] != "killed"}
    wanted = [
        mutant
        for mutant in sample
        if mutant.key not in done and (not options.survivors or mutant.key in survived)
    ]
    plugin = Mutations(tree, wanted, options.results.resolve())
    os.chdir(tree)
    words = (
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow",
        "--hypothesis-profile",
        "ci",
    )
    sys.exit(pytest.main([*words, *options.tests], plugins=[plugin]))


if __name__ == "__main__":
    main()
