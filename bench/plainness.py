"""Count how plainly sources, tests, scripts and pages are written: `python bench/plainness.py [ROOT] [--json]`.

The counts point at places to read aloud. `tests/core/test_structure.py` holds a budget for each, which only falls.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import tokenize
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("core", "algos", "envs", "cli")
#: Seventeen habits of these authors that readers of other libraries stumble over.
DIALECT = {
    "what": r"\b[Ww]hat (a|an|the|it|is|was|they|he|one|each|this|these|those|no|nobody|has|does|can|comes|came|goes"
    r"|may|must|would|other|others|another|runs|makes|all|we|you|users?)\b",
    "where": r"\bwhere\b",
    "begin": r"\b(begin(s|ning)?|begun|began)\b",
    "which": r"\b(of|by|in|from|to|on|for|under|with|at) which\b",
    "whose": r"\bwhose\b",
    "who": r"\b[Ww]hoever\b|\b[Nn]obody\b|\b[Ss]omebody\b",
    "alone": r"\balone\b",
    "is no": r"\b(is|are|was|were) no (?!longer|one|more)\b",
    "behind": r"\bbehind\b",
    "beside": r"\bbeside\b",
    "goes on": r"\b(goes|go|going|went|gone) on\b",
    "as it is": r"\bas (it|they|one|this) (is|are|was|were)\b",
    "lies": r"\b(lies?|lay)\b",
    "none is": r"\bnone (is|are|of|but)\b",
    "anew": r"\banew\b",
    "slope": r"\b[Ss]lopes?\b",
    "stands": r"\bstands?\b",
}
#: Irregular participles; `set`, `run`, `read`, `put`, `cut`, `split`, `fit` and `left` are verbs or nouns as well.
PARTICIPLES = re.compile(
    "made|kept|told|found|given|taken|held|said|shown|written|known|chosen|drawn|sent|built|seen|done|gone|heard"
    "|spelled|parted|carried|sealed|judged|placed|lost|met"
)
#: Words that only look like participles.
NOUNS_AND_VERBS = {"seed", "need", "feed", "embed", "speed", "exceed"}
LAYOUT = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Counts:
    """Totals over all source files."""

    totals: Counter[str] = field(default_factory=Counter)
    prose: list[str] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    stems: Counter[str] = field(default_factory=Counter)


def measure(root: Path) -> dict[str, float | str]:
    """Return every count by name for the repository at `root`."""
    counts = Counts()
    for package in PACKAGES:
        for path in sorted((root / f"rlplug-{package}" / "src").rglob("*.py")):
            count_file(path, package, counts)
    tests = rates_of("tests", test_files(root))
    scripts = rates_of("scripts", script_files(root))
    return {**dialect_rates(root, counts), **tests, **scripts, **code_rates(root, counts)}


def dialect_rates(root: Path, counts: Counts) -> dict[str, float | str]:
    """Return the patterns per 10,000 words of pages, and of docstrings and comments."""
    in_pages = "\n".join(without_code(page.read_text(encoding="utf-8")) for page in pages(root))
    in_source = re.sub(r"`[^`]*`", "X", "\n".join(counts.prose))
    by_pattern = occurrences(in_pages) + occurrences(in_source)
    return {
        "dialect docs per 10k": round(dialect_rate(in_pages), 1),
        "dialect source per 10k": round(dialect_rate(in_source), 1),
        "most frequent": ", ".join(f"{name} {n}" for name, n in by_pattern.most_common(8)),
    }


def test_files(root: Path) -> list[Path]:
    """Return the files below `tests` and the tests of the examples."""
    folders = [root / "tests", *sorted(root.glob("examples/*/tests"))]
    return [path for folder in folders for path in sorted(folder.rglob("*.py"))]


def script_files(root: Path) -> list[Path]:
    """Return the files of the repository that are neither tests nor sources of the four packages."""
    scripts = [root / "noxfile.py", *sorted(root.glob("examples/*.py"))]
    folders = [root / ".ci", root / "bench", root / "docs", *sorted(root.glob("examples/*/src"))]
    scripts += [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    return [*scripts, root / ".ci" / "run", *sorted((root / ".github").rglob("*.yml"))]


def rates_of(label: str, files: list[Path]) -> dict[str, float | str]:
    """Return the counts for tests or scripts: odd patterns, participles as names, packed statements.

    A function name is read as a sentence: `test_a_run_goes_on` is four words after `test`. Other files than Python
    count as prose.
    """
    counts = Counts()
    totals = counts.totals
    names = []
    for path in files:
        source = path.read_text(encoding="utf-8")
        if path.suffix != ".py":
            counts.prose.append(source)
            continue
        tree = ast.parse(source)
        code = count_tokens(source, docstrings(tree, counts), counts)
        totals["code"] += len(code)
        count_nodes(tree, code, label, counts)
        functions = (node.name for node in ast.walk(tree) if isinstance(node, Function))
        names += [name.strip("_").removeprefix("test_").replace("_", " ") for name in functions]
    text = re.sub(r"`[^`]*`", "X", "\n".join([*counts.prose, *names]))
    return {
        f"dialect {label} per 10k": round(dialect_rate(text), 1),
        f"participle functions of {label} %": round(
            100 * totals["participles"] / totals["functions"], 1
        ),
        f"tuple assignments of {label} per 1k": round(
            1000 * totals["tuple assignments"] / totals["code"], 1
        ),
        f"fmt: skip of {label}": totals["fmt: skip"],
    }


def code_rates(root: Path, counts: Counts) -> dict[str, float | str]:
    """Return the counts that come from the syntax of the sources."""
    totals = counts.totals
    thousands = totals["code"] / 1000
    core_thousands = totals["code core"] / 1000
    lengths = sorted(counts.lengths)
    median = lengths[len(lengths) // 2]
    ninth = lengths[int(len(lengths) * 0.9)]
    tests = (root / "tests").rglob("*.py")
    return {
        "participle functions %": round(100 * totals["participles"] / totals["functions"], 1),
        "tokens per code line": round(totals["tokens"] / totals["code"], 2),
        "tuple assignments per 1k": round(totals["tuple assignments"] / thousands, 1),
        "fmt: skip": totals["fmt: skip"],
        "short one-caller helpers per 1k": round(totals["short helpers"] / thousands, 1),
        "Any per 1k": round(totals["Any"] / thousands, 1),
        "Any per 1k core": round(totals["Any core"] / core_thousands, 1),
        "core source lines": totals["lines core"],
        "source files": totals["files"],
        "files under 50 lines": totals["files under 50"],
        "file stems used twice": sum(n > 1 for n in counts.stems.values()),
        "functions": totals["functions"],
        "function lines median/p90/max": f"{median}/{ninth}/{lengths[-1]}",
        "core modules the CLI imports": len(imported_by_cli(root)),
        "imports of fast outside it": totals["imports of fast"],
        "tests of kind in rooms that compute": totals["kind tests"],
        "test lines": sum(len(path.read_text(encoding="utf-8").splitlines()) for path in tests),
    }


def count_file(path: Path, package: str, counts: Counts) -> None:
    """Add the counts of one source file to `counts`."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    totals = counts.totals
    lines = len(source.splitlines())
    totals["files"] += 1
    totals[f"lines {package}"] += lines
    if path.name != "__init__.py":
        totals["files under 50"] += lines < 50
        counts.stems[path.stem] += 1
    documented = docstrings(tree, counts)
    code = count_tokens(source, documented, counts)
    totals["code"] += len(code)
    totals[f"code {package}"] += len(code)
    count_nodes(tree, code, package, counts)
    if package == "algos" or (package == "core" and computes(path)):
        kinds = r"isinstance\([^)]*(?:np\.ndarray|Node|FastTensor)"
        totals["kind tests"] += len(re.findall(kinds, source))
    if package == "core" and "fast" not in path.parts:
        imports = (n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom))
        totals["imports of fast"] += sum("rlplug_core.fast" in ast.unparse(n) for n in imports)


def computes(path: Path) -> bool:
    """Return whether a file of rlplug_core has networks, losses, batches or buffers; its code never tests a kind.

    The other rooms test the values that plugins, files and devices give them.
    """
    room = path.parts[path.parts.index("rlplug_core") + 1]
    return room in ("nets", "learning", "buffers") or room.endswith(".py")


def docstrings(tree: ast.Module, counts: Counts) -> set[int]:
    """Collect the docstrings, and return the numbers of their lines."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        text = ast.get_docstring(node) if isinstance(node, Documented) else None
        if text:
            counts.prose.append(text)
            first = node.body[0]  # type: ignore[attr-defined]
            lines |= set(range(first.lineno, first.end_lineno + 1))
    return lines


def count_tokens(source: str, documented: set[int], counts: Counts) -> set[int]:
    """Count tokens and collect comments; return the numbers of the lines with code."""
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            counts.prose.append(token.string.lstrip("#: "))
            counts.totals["fmt: skip"] += "fmt: skip" in token.string
        if token.type not in LAYOUT and token.start[0] not in documented:
            counts.totals["tokens"] += 1
            code |= set(range(token.start[0], token.end[0] + 1))
    return code


def count_nodes(tree: ast.Module, code: set[int], package: str, counts: Counts) -> None:
    """Count functions, `Any` and tuple assignments of a syntax tree."""
    totals = counts.totals
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name | ast.Attribute)]
    uses = Counter(node.id if isinstance(node, ast.Name) else node.attr for node in names)
    totals["Any"] += uses["Any"]
    totals[f"Any {package}"] += uses["Any"]
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
            totals["tuple assignments"] += isinstance(node.targets[0], ast.Tuple)
        if isinstance(node, Function):
            totals["functions"] += 1
            counts.lengths.append(lines_between(node.lineno, node, code))
            totals["participles"] += is_participle(node.name.strip("_").split("_")[0])
            body = lines_between(node.body[0].lineno, node, code)
            private = node.name.startswith("_") and not node.name.startswith("__")
            totals["short helpers"] += private and uses[node.name] == 1 and body < 5


def lines_between(start: int, node: Function, code: set[int]) -> int:
    """Return the number of code lines from `start` to the end of a function."""
    return sum(number in code for number in range(start, (node.end_lineno or 0) + 1))


def is_participle(word: str) -> bool:
    """Return whether a name starts with a past participle."""
    regular = len(word) > 4 and word.endswith("ed") and word not in NOUNS_AND_VERBS
    return regular or PARTICIPLES.fullmatch(word) is not None


def pages(root: Path) -> list[Path]:
    """Return all Markdown pages, sorted by folder."""
    folders = [root / "docs", root / "bench", root / "examples"]
    below = [page for folder in folders for page in sorted(folder.rglob("*.md"))]
    return [*sorted(root.glob("*.md")), *sorted(root.glob("rlplug-*/*.md")), *below]


def without_code(text: str) -> str:
    """Return the prose of a Markdown page: no code blocks, code words or addresses."""
    without_blocks = re.sub(r"```.*?```", "", text, flags=re.S)
    without_words = re.sub(r"`[^`]*`", "X", without_blocks)
    return re.sub(r"\]\([^)]*\)", "]", without_words)


def occurrences(text: str) -> Counter[str]:
    """Return how often each pattern occurs."""
    return Counter({name: len(re.findall(DIALECT[name], text)) for name in DIALECT})


def dialect_rate(text: str) -> float:
    """Return the occurrences of all patterns per 10,000 words."""
    words = len(re.findall(r"[A-Za-z']+", text)) or 1
    return 10_000 * occurrences(text).total() / words


def imported_by_cli(root: Path) -> set[str]:
    """Return the modules of rlplug_core that rlplug-cli imports from; `from PACKAGE import MODULE` counts as MODULE."""
    source = root / "rlplug-core" / "src"
    modules = set()
    for path in (root / "rlplug-cli" / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                files = {name for name in inner if is_module(source, name)}
                modules |= files if files == inner else {*files, node.module}
    return {name for name in modules if name.partition(".")[0] == "rlplug_core"}


def is_module(source: Path, name: str) -> bool:
    """Return whether a dotted name is a module or a package below the folder `source`."""
    path = source.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def main() -> None:
    """Print the counts, one a line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("root", nargs="?", type=Path, default=ROOT)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    counts = measure(options.root)
    if options.json:
        print(json.dumps(counts))
    else:
        print("\n".join(f"{name:36} {value}" for name, value in counts.items()))


if __name__ == "__main__":
    main()
