"""Every check of the repository: `python -m nox` runs the default ones, `python -m nox -l` lists them all.

The four wheels are built once. Each test session installs the wheels of the packages it may use, and its tools, in one
pip command under `constraints.txt`: an undeclared import or a file missing from a wheel fails there.
"""

from __future__ import annotations

import atexit
import os
import shutil
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
PACKAGES = ("rlplug-core", "rlplug-algos", "rlplug-envs", "rlplug-cli")
SOURCES = [f"{package}/src" for package in PACKAGES]
EXAMPLES = (
    "rlplug-cem",
    "rlplug-curriculum",
    "rlplug-dyna",
    "rlplug-gridworld",
    "rlplug-rnd",
    "rlplug-telegraph",
)
PYTEST = ("pytest>=8.3", "pytest-xdist>=3.6", "hypothesis>=6.140", "jsonschema>=4.20")
#: Two tests at a time, since most wait for processes that they started; and which of them took longest.
PARALLEL = ("-n", "2", "--dist", "worksteal", "--durations", "10")
#: Which of them the plain nox runs, with the same generated examples each time, and which the session `slow`. `pytest`
#: by hand draws others: what they find is a bug, and no reason for somebody else's change to fail.
QUICK, SLOW = ("-m", "not slow", "--hypothesis-profile", "ci"), ("-m", "slow")

#: What would lead a session to packages, plugins or stores that are not its own; the last would make each of the many
#: processes of the tests compile its imports anew, which doubles their time.
for variable in (
    "PYTHONPATH", "MLFLOW_TRACKING_URI", "RLPLUG_PLUGINS", "RLPLUG_DISABLED_PLUGINS", "RLPLUG_CONFIG",
    "PYTHONDONTWRITEBYTECODE",
):  # fmt: skip
    os.environ.pop(variable, None)
#: Loops are numpy's where a test does not ask for numba's: each process that a test starts would import it.
os.environ["NUMBA_DISABLE_JIT"] = "1"
#: A core for each of the two; more threads than that wait for each other.
os.environ["OMP_NUM_THREADS"] = "1"

#: Seconds that each session spent on its pip command, and on its checks.
installs: dict[str, float] = {}
checks: dict[str, float] = {}


@nox.session(reuse_venv=False, default=False)
def build(session: nox.Session) -> None:
    """Build the four wheels, once for all sessions that install them, and those of the example plugins."""
    install(session, (), "hatchling>=1.26")
    shutil.rmtree(WHEELS, ignore_errors=True)
    with timed(session, checks):
        command = ("python", "-m", "hatchling", "build", "--target", "wheel", "--directory")
        for package in (*PACKAGES, *EXAMPLES):
            folder, wheels = (
                (f"examples/{package}", WHEELS / "examples")
                if package in EXAMPLES
                else (package, WHEELS)
            )
            with session.chdir(folder):
                session.run(*command, str(wheels))


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and formatting with ruff."""
    install(session, (), "ruff")
    with timed(session, checks):
        session.run("ruff", "check", ".")
        session.run("ruff", "format", "--check", ".")


@nox.session(reuse_venv=False, requires=["build"])
def types(session: nox.Session) -> None:
    """Check the sources with mypy, then the typing tests against the installed wheels alone."""
    stubs = (
        "click>=8.2",
        "rich>=13.9",
        "types-psutil",
        "matplotlib",
        "pillow",
        "av",
        "optuna>=5,<6",
    )
    install(session, PACKAGES[:3], "mypy>=2", "pytest>=8.3", *stubs)
    with timed(session, checks):
        session.run("mypy", "-n", "2", *SOURCES, *(f"examples/{name}/src" for name in EXAMPLES))
        session.run("mypy", "--strict", "--config-file=", "tests/typing")


@nox.session(name="tests-core", reuse_venv=False, requires=["build"])
def tests_core(session: nox.Session) -> None:
    """Test rlplug-core, installed alone but for numba, what reads Minari's data sets, and what writes them."""
    run_tests(session, "tests/core", "rlplug-core[minari,numba]", tools=("pillow",))


@nox.session(name="tests-algos", reuse_venv=False, requires=["build"])
def tests_algos(session: nox.Session) -> None:
    """Test rlplug-algos with rlplug-core and numba."""
    run_tests(session, "tests/algos", "rlplug-core[numba]", "rlplug-algos")


@nox.session(name="tests-envs", reuse_venv=False, requires=["build"])
def tests_envs(session: nox.Session) -> None:
    """Test rlplug-envs with rlplug-core, on the families of its extras too."""
    session.env["RLPLUG_ATARI_STEPS"] = (
        "1000"  # of each game beside the reference wrapper; elsewhere 100
    )
    run_tests(
        session,
        "tests/envs",
        "rlplug-core",
        "rlplug-envs[box2d,mujoco,atari,minatar,minigrid,multiagent]",
    )


@nox.session(name="tests-cli", reuse_venv=False, requires=["build"])
def tests_cli(session: nox.Session) -> None:
    """Test rlplug-cli and what only all four packages together can show: films, ONNX, Optuna, TensorBoard among it."""
    install_cli(session)
    with timed(session, checks):
        session.run("pytest", "tests/cli", *PARALLEL, *QUICK, *session.posargs)


@nox.session(reuse_venv=False, default=False, requires=["build"])
def slow(session: nox.Session) -> None:
    """Run the tests that train until something is learned, compile, or repeat the conformance kit (minutes)."""
    install_cli(session)
    with timed(session, checks):
        session.run("pytest", "tests/algos", "tests/cli", *PARALLEL, *SLOW, *session.posargs)


@nox.session(reuse_venv=False, default=False, requires=["build"])
def pages(session: nox.Session) -> None:
    """Run every command that a page shows, those of long pages too, which `tests-cli` leaves out (ten minutes)."""
    install_cli(session)
    session.env["RLPLUG_ALL_PAGES"] = "1"
    with timed(session, checks):
        session.run("pytest", "tests/cli/test_docs.py", *PARALLEL, *session.posargs)


@nox.session(reuse_venv=False, requires=["build"])
def wheels(session: nox.Session) -> None:
    """Look into the wheels, and do the main job with them outside the repository; `ecosystem` builds and types here."""
    session.env["RLPLUG_WHEELS"] = str(WHEELS)
    install(session, PACKAGES, *PYTEST, "hatchling>=1.26", "mypy")
    with timed(session, checks):
        session.run("pytest", "tests/wheels", *PARALLEL, *session.posargs)


@nox.session(venv_backend="none", requires=["wheels"])
def ecosystem(session: nox.Session) -> None:
    """Install plugins on top of the environment of `wheels`, good, bad and new ones; use, break and remove them."""
    python = str(ROOT / ".nox" / "wheels" / "bin" / "python")
    session.env["RLPLUG_EXAMPLES"] = str(WHEELS / "examples")
    with timed(session, checks):
        stories = (
            "-n",
            "2",
            "--dist",
            "loadfile",
        )  # the tests of a file are the steps of one story
        session.run(
            python, "-m", "pytest", "tests/ecosystem", *stories, *session.posargs, external=True
        )


@nox.session(reuse_venv=False, default=False, requires=["build"])
def scaffold(session: nox.Session) -> None:
    """Let a new plugin of each kind pass its own nox, with the wheels of this checkout (half an hour)."""
    install(session, PACKAGES, "nox>=2025.2.9", *PYTEST)
    session.env.update(
        {"RLPLUG_EXAMPLES": "none", "RLPLUG_SCAFFOLD": "1", "RLPLUG_WHEELS": str(WHEELS)}
    )
    with timed(session, checks):
        session.run("pytest", "tests/ecosystem/test_own_nox.py", *session.posargs)


@nox.session(reuse_venv=False, default=False, requires=["build"])
def faults(session: nox.Session) -> None:
    """Kill runs, sweeps and studies, fail file operations, go on, and write `docs/reliability.md` anew (hours).

    It needs Linux and a C compiler. `-- 0.1` draws a tenth of the file operations.
    """
    install(session, (*PACKAGES[:2], "rlplug-envs[multiagent]", "rlplug-cli[tune]"), *PYTEST)
    with timed(session, checks):
        session.run("pytest", "tests/faults", *PARALLEL)
        session.run("python", "-m", "tests.faults.page", *session.posargs)
        session.run("python", "-m", "tests.faults.hostile")


@nox.session(reuse_venv=False, default=False, requires=["build"])
def ray(session: nox.Session) -> None:
    """Run actors and sweeps on Ray clusters on this machine, and kill parts of them (minutes)."""
    core, *rest = PACKAGES
    install(session, (f"{core}[ray]", *rest), *PYTEST)
    with timed(session, checks):
        session.run("pytest", "tests/ray", "--durations", "10", *session.posargs)


@nox.session(reuse_venv=False, default=False, requires=["build"])
def wandb(session: nox.Session) -> None:
    """Test the logger of Weights & Biases, whose package is large, without a network."""
    install(session, (*PACKAGES[:3], "rlplug-cli[wandb]"), *PYTEST)
    with timed(session, checks):
        session.run("pytest", "tests/loggers", *session.posargs)


@nox.session(reuse_venv=False, default=False, requires=["build"])
def envpool(session: nox.Session) -> None:
    """Test the family of EnvPool, whose package is large (740 MB), and run the commands of its page."""
    install(session, (*PACKAGES[:2], "rlplug-envs[envpool]", PACKAGES[3]), *PYTEST)
    with timed(session, checks):
        session.run(
            "pytest", "tests/envs/test_envpool.py", "tests/cli/test_envpool.py", *session.posargs
        )
        session.run("pytest", "tests/cli/test_docs.py", "-k", "envpool")


@nox.session(reuse_venv=False, default=False, requires=["build"])
def families(session: nox.Session) -> None:
    """Test the families of environments whose packages no other session has, and run the commands of their pages."""
    envs = "rlplug-envs[crafter,dm-control,pybullet,robotics]"
    install(session, (*PACKAGES[:2], envs, PACKAGES[3]), "highway-env", *PYTEST)
    files = (
        "envs/test_families.py",
        "envs/test_limits.py",
        "envs/test_killed.py",
        "cli/test_third_party.py",
    )
    with timed(session, checks):
        session.run("pytest", *(f"tests/{file}" for file in files), *PARALLEL, *session.posargs)
        session.run(
            "pytest",
            "tests/cli/test_docs.py",
            "-k",
            "pybullet or dm-control or robotics or highway",
        )


@nox.session(reuse_venv=False, default=False, requires=["build"])
def fuzz(session: nox.Session) -> None:
    """Type 2,000 random argument lists: each gets a result or one sentence (minutes)."""
    install(session, PACKAGES, *PYTEST)
    with timed(session, checks):
        session.run("pytest", "tests/cli/test_fuzz.py", *PARALLEL, env={"RLPLUG_FUZZ": "2000"})


@nox.session(reuse_venv=False, default=False, requires=["build"])
def learn(session: nox.Session) -> None:
    """Train every algorithm with its presets and write what it reaches to bench/LEARNING.md (an hour or more)."""
    install(session, (*PACKAGES[:2], "rlplug-envs[box2d]", PACKAGES[3]))
    with timed(session, checks):
        session.run("python", "bench/learn.py", *session.posargs)


@nox.session(reuse_venv=False, default=False, requires=["build"])
def bench(session: nox.Session) -> None:
    """Measure the overhead over a bare loop; `bench/README.md` lists the other tables."""
    install(session, PACKAGES)
    with timed(session, checks):
        session.run("python", "bench/overhead.py", *session.posargs)


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Build the documentation site into site/; a link that leads nowhere fails."""
    install(session, (), "./rlplug-core", "zensical", "mkdocstrings-python")
    with timed(session, checks):
        session.run("python", "docs/site.py")
        session.run("zensical", "build", "--clean", "--strict")


@nox.session(reuse_venv=False, default=False)
def release(session: nox.Session) -> None:
    """Build and check what is published, in dist/: `-- 0.2.0` as that version, with `--write` in the sources too."""
    tree = (
        ROOT
        if not session.posargs or "--write" in session.posargs
        else copied(Path(session.create_tmp()))
    )
    if session.posargs:
        session.run("python", str(tree / ".ci" / "release.py"), session.posargs[0], "--write")
    shutil.rmtree(DIST, ignore_errors=True)
    install(session, (), "hatchling>=1.26", "twine>=6.1", "readme-renderer[md]", *PYTEST)
    with timed(session, checks):
        for package in PACKAGES:
            with session.chdir(tree / package):
                session.run("python", "-m", "hatchling", "build", "--directory", str(DIST))
        session.run("twine", "check", "--strict", *map(str, DIST.iterdir()))
        session.install("--constraint", "constraints.txt", *map(str, DIST.glob("*.tar.gz")))
        session.run("pytest", "tests/release", env={"RLPLUG_DIST": str(DIST)})


def copied(folder: Path) -> Path:
    """A copy of what a release changes, so that its version can be built before it is in the sources."""
    tree = folder / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    for name in (*PACKAGES, ".ci", "docs/plugins", "examples"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("CITATION.cff", "README.md"):
        shutil.copy(ROOT / name, tree)
    return tree


def run_tests(
    session: nox.Session, folder: str, *packages: str, tools: tuple[str, ...] = ()
) -> None:
    """Install `packages`, `tools` and pytest, and run the tests of `folder`."""
    install(session, packages, *tools, *PYTEST)
    with timed(session, checks):
        session.run("pytest", folder, *PARALLEL, *QUICK, *session.posargs)


def install_cli(session: nox.Session) -> None:
    """Install all packages, and what the tests of films, ONNX, Optuna and notebooks need."""
    tools = ("onnxruntime", "pyyaml>=6", "jupytext>=1.17", "nbclient>=0.10", "ipykernel>=6.29")
    envs = "rlplug-envs[atari,box2d,minatar,minigrid,mujoco,multiagent]"
    install(
        session,
        (*PACKAGES[:2], envs, "rlplug-cli[video,onnx,tune,notebook,tensorboard]"),
        *tools,
        *PYTEST,
    )


def install(session: nox.Session, packages: tuple[str, ...], *requirements: str) -> None:
    """Fill the environment in one pip command; byte code is left to the first import, which halves the time.

    Packages may name extras in brackets.
    """
    found = [
        f"{wheel}{bracket}{extras}"
        for name, bracket, extras in (package.partition("[") for package in packages)
        for wheel in WHEELS.glob(f"{name.replace('-', '_')}-*.whl")
    ]
    with timed(session, installs):
        session.install("--no-compile", "--constraint", "constraints.txt", *found, *requirements)


@contextmanager
def timed(session: nox.Session, seconds: dict[str, float]) -> Iterator[None]:
    """Note how long the block takes, also when it fails."""
    started = time.monotonic()
    try:
        yield
    finally:
        seconds[session.name] = time.monotonic() - started


@atexit.register
def report() -> None:
    """Print where the time went, installs separately."""
    names = dict.fromkeys([*installs, *checks])
    if not names:
        return
    print(f"\n{'session':<12} {'install':>9} {'checks':>9}")
    for name in installs | checks:
        print(f"{name:<12} {installs.get(name, 0.0):>7.1f} s {checks.get(name, 0.0):>7.1f} s")
    print(
        f"{'sum':<12} {sum(installs.values()):>7.1f} s {sum(checks.values()):>7.1f} s", flush=True
    )
