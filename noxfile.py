"""All checks of the repository: `python -m nox` runs the default ones, `python -m nox -l` lists them all.

The four wheels are built once. One environment, `env`, holds them with every extra and tool that tests, types and
pages need; one pip command fills it under `constraints.txt`. `tests/wheels` and `tests/ecosystem` detect undeclared
imports and files missing from a wheel, because only declared distributions can be imported there.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "venv"

ROOT = Path(__file__).parent
WHEELS = ROOT / ".nox" / "wheelhouse"
DIST = ROOT / "dist"
#: Wheels of released versions, and the patterns of those that `compat` installs.
RELEASED = ROOT / ".nox" / "released"
OLD = {
    "plugins": r"rlplug_(?!core|cli)",
    "core": r"rlplug_(core|cli)",
    "all": r"rlplug_",
    "none": r"$^",
}
#: Packages without plugins in the registry.
HOOKS_ONLY = ("rlplug-cli", "rlplug-telegraph")
#: Results of `rlplug check` from `compat`, and the registry and the page that show them.
CHECKED = ROOT / ".nox" / "checked.jsonl"
REGISTRY = ROOT / "rlplug-core" / "src" / "rlplug_core" / "plugins" / "registry.json"
PAGE = ROOT / "docs" / "plugins" / "available.md"
BADGES = ROOT / "docs" / "pictures" / "badges"
PACKAGES = ("rlplug-core", "rlplug-algos", "rlplug-envs", "rlplug-cli")
SOURCES = [f"{package}/src" for package in PACKAGES]
EXAMPLES = (
    "rlplug-cem",
    "rlplug-curriculum",
    "rlplug-dyna",
    "rlplug-gridworld",
    "rlplug-gtrxl",
    "rlplug-imitation",
    "rlplug-maddpg",
    "rlplug-marl",
    "rlplug-rlpd",
    "rlplug-rnd",
    "rlplug-safe",
    "rlplug-scale",
    "rlplug-telegraph",
    "rlplug-world",
)


def with_extras(**extras: str) -> tuple[str, ...]:
    """Return the four packages, some with extras: `cli="tune"` is `rlplug-cli[tune]`."""
    brackets = {f"rlplug-{name}": f"[{names}]" for name, names in extras.items()}
    return tuple(f"{package}{brackets.get(package, '')}" for package in PACKAGES)


#: Packages in the environment `env`: everything that tests, mypy and commands of the pages need.
EVERYTHING = with_extras(
    core="hub,minari,numba",
    envs="atari,box2d,minatar,minigrid,mujoco,multiagent",
    cli="video,onnx,tune,notebook,tensorboard",
)
PYTEST = ("pytest>=8.3", "pytest-xdist>=3.6", "hypothesis>=6.140", "jsonschema>=4.20")
TOOLS = (
    "hatchling>=1.26",
    "mypy>=2",
    "types-psutil",
    "onnxruntime",
    "pyyaml>=6",
    "jupytext>=1.17",
    "nbclient>=0.10",
    "ipykernel>=6.29",
)
ENV = ROOT / ".nox" / "env"
FOLDERS = ("tests/core", "tests/algos", "tests/envs", "tests/cli")
INSTALLED = ("tests/wheels", "tests/ecosystem")
#: Three test processes on two cores: part of the time they wait for processes, servers and disks. The tests of a
#: file share runs and environments, so a file stays in one process; `tests/conftest.py` says which files are first.
PARALLEL = ("-n", "3", "--dist", "loadfile", "--no-loadscope-reorder", "--durations", "10")
#: The plain nox runs the tests without the marker `slow`, with the same generated examples each time. `pytest` by hand
#: generates new examples: a failure there is a bug, but an unrelated change should not fail because of it.
QUICK = ("-m", "not slow", "--hypothesis-profile", "ci")
SLOW = ("-m", "slow")
#: Of `attacks`: the number of trials with signals and concurrent commands, and the seconds after which no trial starts.
SIGNAL_TRIALS = "300"
SIGNAL_SECONDS = "1200"
#: Commands that sessions complete with their last words.
BUILD = ("python", "-m", "hatchling", "build")
UNINSTALL = ("python", "-m", "pip", "uninstall", "--quiet", "--yes")
COMPILE_WITH_ERRORS = ("python", "-W", "error", "-m", "compileall", "-q", "-f")
#: Arguments of pip: wheels of a pair of versions replace those of the last pair, without their requirements.
REPLACE = ("--no-deps", "--force-reinstall", "--no-compile")
#: Asks pip if it finds a torch for this Python, without a download.
FIND_TORCH = (
    *("python", "-m", "pip", "install", "--dry-run", "--quiet"),
    *("--ignore-installed", "--no-deps", "--only-binary=:all:"),
)
#: Python versions that `pythons` tries.
PYTHONS = ("3.11", "3.12", "3.13", "3.14")

#: Variables that would select other packages, plugins or stores. With the last one, each of the many test processes
#: would compile its imports again, which doubles the time of the tests.
for variable in (
    "PYTHONPATH",
    "MLFLOW_TRACKING_URI",
    "RLPLUG_PLUGINS",
    "RLPLUG_DISABLED_PLUGINS",
    "RLPLUG_CONFIG",
    "PYTHONDONTWRITEBYTECODE",
):
    os.environ.pop(variable, None)
#: Loops run in numpy unless a test asks for numba; otherwise each process that a test starts would import numba.
os.environ["NUMBA_DISABLE_JIT"] = "1"
#: One thread per test process; more threads would compete for the cores.
os.environ["OMP_NUM_THREADS"] = "1"

#: With pyenv, `python3.12` works only if PYENV_VERSION contains a 3.12: set the newest of each minor version.
if any(word.startswith("pythons") for word in sys.argv):
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    versions = [sorted(path.name for path in pyenv.glob(f"{minor}.*")) for minor in PYTHONS]
    newest = [names[-1] for names in versions if names]
    os.environ.setdefault("PYENV_VERSION", ":".join(newest) or "system")

#: Seconds that each session needed for its pip command, and for its checks.
install_seconds: dict[str, float] = {}
check_seconds: dict[str, float] = {}


@nox.session(reuse_venv=True, default=False)
def build(session: nox.Session) -> None:
    """Build the wheels of the four packages and of the examples, once for all sessions that install them."""
    install(session, "hatchling>=1.26")
    shutil.rmtree(WHEELS, ignore_errors=True)
    with record_time(session, check_seconds):
        for package in PACKAGES:
            build_wheel(session, ROOT / package, WHEELS)
        for package in EXAMPLES:
            build_wheel(session, ROOT / "examples" / package, WHEELS / "examples")


def build_wheel(session: nox.Session, source: Path, wheels: Path) -> None:
    """Build the wheel of the distribution in the folder `source` into the folder `wheels`."""
    with session.chdir(source):
        session.run(*BUILD, "--target", "wheel", "--directory", str(wheels))


@nox.session(reuse_venv=True, default=False, requires=["build"])
def env(session: nox.Session) -> None:
    """Fill the environment of tests, types and pages. It is kept; only the four wheels are replaced."""
    session.run(*UNINSTALL, *PACKAGES, silent=True)
    install(session, *TOOLS, *PYTEST, wheels=EVERYTHING)


@nox.session(reuse_venv=True)
def lint(session: nox.Session) -> None:
    """Check style and formatting with ruff."""
    install(session, "ruff")
    with record_time(session, check_seconds):
        session.run("ruff", "check", ".")
        session.run("ruff", "format", "--check", ".")


@nox.session(venv_backend="none", requires=["env"])
def types(session: nox.Session) -> None:
    """Check the sources with mypy, then the typing tests against the installed wheels."""
    sources = (*SOURCES, *(f"examples/{name}/src" for name in EXAMPLES))
    with record_time(session, check_seconds), compile_tests():
        in_env(session, "mypy", "-n", "2", *sources)
        in_env(session, "mypy", "--strict", "--config-file=", "tests/typing")


@nox.session(venv_backend="none", requires=["env"])
def tests(session: nox.Session) -> None:
    """Run all tests in one pytest; `tests-core`, `wheels`, `ecosystem` and others run one folder."""
    run_tests(session, *FOLDERS, *INSTALLED, *QUICK)


@nox.session(name="tests-core", venv_backend="none", default=False, requires=["env"])
def tests_core(session: nox.Session) -> None:
    """Test rlplug-core."""
    run_tests(session, "tests/core", *QUICK)


@nox.session(name="tests-algos", venv_backend="none", default=False, requires=["env"])
def tests_algos(session: nox.Session) -> None:
    """Test rlplug-algos, on environments from `rlplug_core.testing`."""
    run_tests(session, "tests/algos", *QUICK)


@nox.session(name="tests-envs", venv_backend="none", default=False, requires=["env"])
def tests_envs(session: nox.Session) -> None:
    """Test rlplug-envs, including the families of its extras."""
    run_tests(session, "tests/envs", *QUICK)


@nox.session(name="tests-cli", venv_backend="none", default=False, requires=["env"])
def tests_cli(session: nox.Session) -> None:
    """Test rlplug-cli, and features that need all four packages: films, ONNX, Optuna, TensorBoard."""
    run_tests(session, "tests/cli", *QUICK)


@nox.session(venv_backend="none", default=False, requires=["env"])
def wheels(session: nox.Session) -> None:
    """Check the content of the wheels, import them with only declared dependencies, train outside the checkout."""
    run_tests(session, "tests/wheels")


@nox.session(venv_backend="none", default=False, requires=["env"])
def ecosystem(session: nox.Session) -> None:
    """Install good, bad and new plugins together with the four packages; use, break and remove them."""
    run_tests(session, "tests/ecosystem")


@nox.session(reuse_venv=True, default=False)
def quick(session: nox.Session) -> None:
    """Check a change in about a minute while you work: style, types and tests of the changed files."""
    fill_quick(session)
    with record_time(session, check_seconds):
        session.run("python", ".ci/quick.py", *session.posargs)


@nox.session(venv_backend="none", default=False, requires=["env"])
def nightly(session: nox.Session) -> None:
    """Run the checks that take too long for the plain nox: `slow` with the pages, `fuzz`, `attacks` (two hours)."""
    # nox skips the requirements of sessions that `notify` adds, so this session requires `env` itself.
    for name in ("slow", "fuzz", "attacks"):
        session.notify(name)


@nox.session(venv_backend="none", default=False, requires=["env"])
def slow(session: nox.Session) -> None:
    """Run the tests marked `slow`: long training, compilers, variants of the conformance kit, most pages."""
    run_tests(session, *FOLDERS, *INSTALLED, *SLOW)
    run_tests(session, "tests/envs/test_atari.py", RLPLUG_ATARI_STEPS="1000")


@nox.session(venv_backend="none", default=False, requires=["env"])
def pages(session: nox.Session) -> None:
    """Run the commands of every page of the documentation (ten minutes)."""
    run_tests(session, "tests/cli/test_docs.py")


@nox.session(venv_backend="none", default=False, requires=["env"])
def fuzz(session: nox.Session) -> None:
    """Run 2,000 random command lines: each must print a result or a one-sentence error (minutes)."""
    run_tests(session, "tests/cli/test_fuzz.py", RLPLUG_FUZZ="2000")


@nox.session(venv_backend="none", default=False, requires=["env"])
def attacks(session: nox.Session) -> None:
    """Open 3,000 hostile files, then send signals and start commands at the same time for 20 minutes.

    `-- -k shared_files` opens only shared agents and registries, and sends no signals.
    """
    run_tests(session, "tests/faults/test_hostile_files.py")
    if not session.posargs:
        with record_time(session, check_seconds):
            in_env(session, "tests.faults.moments", SIGNAL_TRIALS, SIGNAL_SECONDS)


@nox.session(python=PYTHONS, reuse_venv=True, default=False, requires=["build"])
def pythons(session: nox.Session) -> None:
    """Run the tests of rlplug-core on each installed Python that has a torch for CPUs; skip the others."""
    reason = without_torch(session)
    if reason:
        install(session, "click>=8.2")
        session.install("--no-deps", *wheel_files(PACKAGES))
        packages = Path(session.virtualenv.location).glob(
            "lib/*/site-packages/rlplug_*/__init__.py"
        )
        folders = [str(path.parent) for path in packages]
        session.run(*COMPILE_WITH_ERRORS, *folders)
        session.run("rlplug", "--help", silent=True)
        session.run("rlplug", "list", silent=True)
        session.skip(f"{reason}; the sources compile there, and 'rlplug list' and '--help' work")
    install(session, *PYTEST, wheels=with_extras(core="minari,numba"))
    with record_time(session, check_seconds):
        session.run("pytest", "tests/core", *PARALLEL, *QUICK, *session.posargs)


@nox.session(reuse_venv=True, default=False, requires=["env"])
def scaffold(session: nox.Session) -> None:
    """Create a plugin of each kind and run its own nox, with the wheels of this checkout (ten minutes).

    The test runs in `env` and starts the nox of this session, so torch is not installed again.
    """
    install(session, "nox>=2025.2.9")
    nox_python = str(Path(session.bin) / "python")
    with record_time(session, check_seconds):
        # The first plugin installs torch; pytest would print a traceback after ten minutes.
        limit = ("-o", "faulthandler_timeout=0")
        arguments = ("tests/ecosystem/test_own_nox.py", *limit, *session.posargs)
        variables = {"RLPLUG_SCAFFOLD": nox_python, "RLPLUG_WHEELS": str(WHEELS)}
        in_env(session, "pytest", *arguments, **variables)


@nox.session(reuse_venv=True, default=False, requires=["build"])
def compat(session: nox.Session) -> None:
    """Install released wheels together with those of this checkout: old plugins, old runs, an old core (minutes).

    The results of `rlplug check` are written into rlplug-core's `registry.json`, the page of plugins and the badges.
    """
    install(session, "hatchling>=1.26", *PYTEST, wheels=PACKAGES)
    session.run("python", ".ci/released.py", str(RELEASED))
    CHECKED.unlink(missing_ok=True)
    for release in sorted(RELEASED.iterdir()):
        for old, pattern in OLD.items():
            wheels = pair(release, pattern)
            session.install(*REPLACE, *wheels)
            variables = {"RLPLUG_RELEASE": release.name, "RLPLUG_OLD": old}
            with record_time(session, check_seconds):
                session.run(
                    "pytest", "tests/compat", env={**variables, "RLPLUG_CHECKED": str(CHECKED)}
                )
    session.install("--no-deps", "--no-compile", *wheel_files(EXAMPLES))
    names = [name for name in (*PACKAGES, *EXAMPLES) if name not in HOOKS_ONLY]
    registry = ("--registry", str(REGISTRY))
    pages = ("--page", str(PAGE), "--badges", str(BADGES))
    session.run("rlplug", "index", *names, "--check", *registry)
    session.run("python", ".ci/checked.py", str(CHECKED), str(REGISTRY))
    session.run("rlplug", "search", *registry, *pages, silent=True)


def pair(release: Path, pattern: str) -> list[str]:
    """Return the released wheels of a pattern, and those of this checkout for all other packages."""
    names = sorted(path.name for path in release.glob("*.whl"))
    olds = [name for name in names if re.match(pattern, name)]
    packages = {name.partition("-")[0] for name in names if name not in olds}
    new = [path for name in packages for path in WHEELS.rglob(f"{name}-*.whl")]
    return [*(str(release / name) for name in olds), *map(str, new)]


@nox.session(reuse_venv=True, default=False, requires=["build"])
def portable(session: nox.Session) -> None:
    """Run the main commands on Windows or macOS; on Linux the tests simulate Windows (ten minutes)."""
    install(session, *PYTEST, wheels=with_extras(cli="video,tune,tensorboard"))
    with record_time(session, check_seconds):
        session.run("pytest", "tests/portable", "--durations", "10", *session.posargs)


@nox.session(reuse_venv=False, default=False, requires=["build"])
def faults(session: nox.Session) -> None:
    """Kill runs, sweeps and studies, make file operations fail, resume, and update `docs/reliability.md` (hours).

    Needs Linux and a C compiler. `-- 0.1` tests only a tenth of the file operations.
    """
    install(session, *PYTEST, wheels=with_extras(envs="multiagent", cli="tune"))
    with record_time(session, check_seconds):
        session.run("pytest", "tests/faults", *PARALLEL)
        session.run("python", "-m", "tests.faults.page", *session.posargs)
        session.run("python", "-m", "tests.faults.hostile")
        session.run("python", "-m", "tests.faults.moments")


@nox.session(reuse_venv=False, default=False, requires=["build"])
def ray(session: nox.Session) -> None:
    """Run actors and sweeps on Ray clusters on this machine, and kill parts of them (minutes)."""
    install(session, *PYTEST, wheels=with_extras(core="ray"))
    with record_time(session, check_seconds):
        session.run("pytest", "tests/ray", "--durations", "10", *session.posargs)


@nox.session(reuse_venv=False, default=False, requires=["build"])
def wandb(session: nox.Session) -> None:
    """Test the logger of Weights & Biases without a network; its package is large."""
    install(session, *PYTEST, wheels=with_extras(cli="wandb"))
    with record_time(session, check_seconds):
        session.run("pytest", "tests/loggers", *session.posargs)


@nox.session(reuse_venv=False, default=False, requires=["build"])
def envpool(session: nox.Session) -> None:
    """Test EnvPool, which needs a large package (740 MB), and run the commands of its page."""
    install(session, *PYTEST, wheels=with_extras(envs="envpool"))
    with record_time(session, check_seconds):
        session.run(
            "pytest", "tests/envs/test_envpool.py", "tests/cli/test_envpool.py", *session.posargs
        )
        session.run("pytest", "tests/cli/test_docs.py", "-k", "envpool")


@nox.session(reuse_venv=False, default=False, requires=["build"])
def families(session: nox.Session) -> None:
    """Test environments from packages that no other session installs, and run the commands of their pages."""
    wheels = with_extras(envs="crafter,dm-control,pybullet,robotics")
    install(session, "highway-env", *PYTEST, wheels=wheels)
    files = (
        "envs/test_families.py",
        "envs/test_limits.py",
        "envs/test_killed.py",
        "cli/test_third_party.py",
    )
    with record_time(session, check_seconds):
        session.run("pytest", *(f"tests/{file}" for file in files), *PARALLEL, *session.posargs)
        pages = ("-k", "pybullet or dm-control or robotics or highway")
        session.run("pytest", "tests/cli/test_docs.py", *pages)


@nox.session(reuse_venv=False, default=False, requires=["build"])
def learn(session: nox.Session) -> None:
    """Train every algorithm with its presets and write the results to bench/LEARNING.md (many hours)."""
    install(session, wheels=with_extras(envs="box2d"))
    with record_time(session, check_seconds):
        session.run("python", "bench/learn.py", *session.posargs)


@nox.session(reuse_venv=False, default=False, requires=["build"])
def bench(session: nox.Session) -> None:
    """Measure the overhead over a bare loop; `bench/README.md` lists the other tables."""
    install(session, wheels=PACKAGES)
    with record_time(session, check_seconds):
        session.run("python", "bench/overhead.py", *session.posargs)


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Build the documentation site in site/; a broken link is an error."""
    install(session, "./rlplug-core", "zensical", "mkdocstrings-python")
    with record_time(session, check_seconds):
        session.run("python", "docs/site.py")
        session.run("zensical", "build", "--clean", "--strict")


@nox.session(reuse_venv=False, default=False)
def release(session: nox.Session) -> None:
    """Build and check the files to publish in dist/: `-- rlplug-algos 0.1.1` builds one package as that version.

    `--write` also changes the sources. Without a version the package keeps its own; without a package all packages
    except the examples are built.
    """
    words = [word for word in session.posargs if word != "--write"]
    writes = "--write" in session.posargs
    tree = ROOT if writes or len(words) < 2 else copy_sources(Path(session.create_tmp()))
    if len(words) == 2:
        session.run("python", str(tree / ".ci" / "release.py"), *words, "--write")
    shutil.rmtree(DIST, ignore_errors=True)
    install(session, "hatchling>=1.26", "twine>=6.1", "readme-renderer[md]", *PYTEST)
    example = [f"examples/{name}" for name in words[:1] if name in EXAMPLES]
    with record_time(session, check_seconds):
        for package in ("rlplug", "rlplug-zoo", *PACKAGES, *example):
            with session.chdir(tree / package):
                session.run(*BUILD, "--directory", str(DIST))
        session.run("twine", "check", "--strict", *map(str, DIST.iterdir()))
        session.install("--constraint", "constraints.txt", *map(str, DIST.glob("*.tar.gz")))
        session.run("pytest", "tests/release", env={"RLPLUG_DIST": str(DIST)})
    for path in DIST.iterdir() if words else ():
        if not path.name.startswith(f"{words[0].replace('-', '_')}-"):
            path.unlink()


def copy_sources(folder: Path) -> Path:
    """Copy the files that a release changes, to build a version that is not in the sources yet."""
    tree = folder / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    for name in ("rlplug", "rlplug-zoo", *PACKAGES, ".ci", "examples"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "CITATION.cff", tree)
    return tree


def in_env(session: nox.Session, module: str, *arguments: str, **variables: str) -> None:
    """Run a module, such as pytest, with the Python of the environment `env`."""
    session.run(python_of_env(), "-m", module, *arguments, env=variables, external=True)


def python_of_env() -> str:
    """Return the path of the Python of the environment `env`."""
    return str(ENV / ("Scripts" if os.name == "nt" else "bin") / "python")


@contextmanager
def compile_tests() -> Iterator[None]:
    """Collect the tests during the block; this compiles their imports once instead of once per test process."""
    collect = (python_of_env(), "-m", "pytest", "--collect-only")
    with subprocess.Popen([*collect, *FOLDERS, *INSTALLED], cwd=ROOT, stdout=subprocess.DEVNULL):
        yield


def run_tests(session: nox.Session, *arguments: str, **variables: str) -> None:
    """Run pytest in the environment `env`; arguments after `--` are added."""
    variables["RLPLUG_WHEELS"] = str(WHEELS)
    with record_time(session, check_seconds):
        in_env(session, "pytest", *arguments, *PARALLEL, *session.posargs, **variables)


def install(session: nox.Session, *requirements: str, wheels: tuple[str, ...] = ()) -> None:
    """Install requirements and wheels of this checkout with one pip command.

    Names of wheels may have extras in brackets. Python compiles each module at its first import, which takes half the
    time of compiling all modules here.
    """
    files = wheel_files(wheels)
    with record_time(session, install_seconds):
        session.install("--no-compile", "--constraint", "constraints.txt", *files, *requirements)


def wheel_files(packages: tuple[str, ...]) -> list[str]:
    """Return the paths of the wheels, with the extras of each package in brackets."""
    return [
        f"{wheel}{bracket}{extras}"
        for name, bracket, extras in (package.partition("[") for package in packages)
        for wheel in WHEELS.rglob(f"{name.replace('-', '_')}-*.whl")
    ]


def fill_quick(session: nox.Session) -> None:
    """Install the sources as editable, unless this was already done with the same requirements."""
    files = [ROOT / "constraints.txt", *(ROOT / name / "pyproject.toml" for name in PACKAGES)]
    wanted = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    stamp = Path(session.virtualenv.location) / "filled-for"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return
    editable = [word for name in EVERYTHING for word in ("--editable", f"./{name}")]
    install(session, *editable, *TOOLS, *PYTEST, "ruff")
    stamp.write_text(wanted, encoding="utf-8")


def without_torch(session: nox.Session) -> str:
    """Return a reason if pip finds no torch for CPUs for this Python, otherwise "".

    On Linux the version of such a torch ends in "+cpu". Any other torch includes CUDA, which has several gigabytes.
    """
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    torch = re.findall(r"^torch==\S+", pins, re.M)[0] + "+cpu" * (sys.platform == "linux")
    output = session.run(*FIND_TORCH, torch, silent=True, success_codes=[0, 1])
    return f"pip finds no {torch} for Python {session.python}" if "ERROR" in output else ""


@contextmanager
def record_time(session: nox.Session, seconds: dict[str, float]) -> Iterator[None]:
    """Add the seconds of the block to those of the session, also if it fails."""
    started = time.monotonic()
    try:
        yield
    finally:
        seconds[session.name] = seconds.get(session.name, 0.0) + time.monotonic() - started


@atexit.register
def report() -> None:
    """Print the seconds of each session for installation and for checks."""
    names = dict.fromkeys([*install_seconds, *check_seconds])
    if not names:
        return
    print(f"\n{'session':<12} {'install':>9} {'checks':>9}")
    for name in install_seconds | check_seconds:
        print(
            f"{name:<12} {install_seconds.get(name, 0.0):>7.1f} s {check_seconds.get(name, 0.0):>7.1f} s"
        )
    print(
        f"{'sum':<12} {sum(install_seconds.values()):>7.1f} s {sum(check_seconds.values()):>7.1f} s",
        flush=True,
    )
