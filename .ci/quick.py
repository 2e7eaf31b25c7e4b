"""Check what changed, in about a minute: `nox -s quick`, or `python .ci/quick.py` in your own environment.

Runs ruff on everything, mypy on the changed sources, and the tests of the changed files. Changed files are those that
differ from `main` or from the revision in the argument. Tests stop after RLPLUG_TEST_SECONDS (default: 45).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SECONDS = "RLPLUG_TEST_SECONDS"
#: Tests of the shape of the code base; they take seconds.
ALWAYS = ["tests/core/test_structure.py"]


def main() -> int:
    """Run the checks; the exit code is that of the first check that failed."""
    files = files_since(sys.argv[1] if len(sys.argv) > 1 else "main")
    sources = [
        name for name in files if re.match(r"(rlplug-\w+|examples/[\w-]+)/src/.+\.py$", name)
    ]
    tests = [*ALWAYS, *tests_of(files)]
    commands = [["ruff", "check", "."], ["ruff", "format", "--check", "."]]
    if sources:
        commands.append(["mypy", *sources])
    commands.append(["pytest", "-q", "-x", "-m", "not slow", *dict.fromkeys(tests)])
    for command in commands:
        sys.stderr.write(f"$ {' '.join(command)}\n")
        code = subprocess.call([sys.executable, "-m", *command], cwd=ROOT, env=environment())
        if code:
            return code
    return 0


def environment() -> dict[str, str]:
    """Return the variables of the tests: one thread, numpy's loops, a limit of seconds."""
    return {"NUMBA_DISABLE_JIT": "1", "OMP_NUM_THREADS": "1", SECONDS: "45", **os.environ}


def files_since(revision: str) -> list[str]:
    """Return the files that differ from the branch point of `revision`, and new files that git does not ignore."""
    exists = not subprocess.call(
        ["git", "rev-parse", "--verify", "--quiet", revision], cwd=ROOT, stdout=subprocess.DEVNULL
    )
    base = git("merge-base", revision, "HEAD")[0] if exists else "HEAD"
    names = git("diff", "--name-only", base) + git("ls-files", "--others", "--exclude-standard")
    return sorted({name for name in names if (ROOT / name).exists()})


def git(*words: str) -> list[str]:
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()


def tests_of(files: list[str]) -> list[str]:
    """Return the changed test files, the tests named after a changed source or importing it, and those of its room."""
    sources = [Path(name) for name in files if "/src/" in name and name.endswith(".py")]
    found = [
        name for name in files if re.match(r"tests/(core|algos|envs|cli)/.*test_\w+\.py$", name)
    ]
    for test in sorted(ROOT.glob("tests/*/**/test_*.py")):
        name = test.relative_to(ROOT).as_posix()
        text = test.read_text(encoding="utf-8")
        if any(
            test.stem == f"test_{source.stem}" or module_name(source) in text for source in sources
        ):
            found.append(name)
    return [*found, *rooms(sources)]


def module_name(source: Path) -> str:
    """Return the module name of a source file."""
    parts = source.with_suffix("").parts
    return ".".join(parts[parts.index("src") + 1 :]).removesuffix(".__init__")


def rooms(sources: list[Path]) -> list[str]:
    """Return the test folders of the rooms of rlplug-core that changed."""
    names = {source.parts[3] for source in sources if source.parts[0] == "rlplug-core"}
    folders = [f"tests/core/{name}" for name in sorted(names)]
    return [folder for folder in folders if (ROOT / folder).is_dir()]


if __name__ == "__main__":
    sys.exit(main())
