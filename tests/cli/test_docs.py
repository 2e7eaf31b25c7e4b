"""The commands and snippets of the documentation run, and its links and options exist.

Every fenced block of the README, `docs/*.md`, `docs/algorithms/*.md`, `docs/environments/*.md` and of some pages for
authors runs, page by page, in an empty directory. Only `shorten` and `shorten_script` change it, to make runs shorter.
Known kinds of blocks:

    sh        commands, one per line
    console   commands after `$ `, then their output: `…` stands for anything, numbers for any number; `^C` is Ctrl-C
    python    a script; with `title=NAME` a file for the blocks after it
    toml      with `title=NAME` a file, too
    text      nothing to run
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sysconfig
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import click
import pytest

from rlplug_cli.app import COMMANDS, app
from rlplug_cli.arguments import option_name
from rlplug_cli.scaffold import bounds
from rlplug_core import __version__
from rlplug_core.plugins import reserved
from rlplug_core.plugins.known import KNOWN
from tests.conftest import Warm
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
ALGORITHMS = sorted((ROOT / "docs" / "algorithms").glob("*.md"))
FAMILIES = sorted((ROOT / "docs" / "environments").glob("*.md"))
#: Pages for authors of plugins whose examples need no installation; `tests/ecosystem` runs the tutorial.
PARTS = ("off-policy", "signals", "state", "controllers", "memories")
AUTHORS = [ROOT / "docs" / "plugins" / f"{name}.md" for name in PARTS]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *ALGORITHMS, *FAMILIES, *AUTHORS]
PLUGIN_PAGES = sorted((ROOT / "docs" / "plugins").glob("*.md"))
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
#: Pages with only their links checked here.
LINKED = [*DECISIONS, ROOT / "CONTRIBUTING.md", *sorted({*PLUGIN_PAGES} - {*AUTHORS})]
PICTURES = sorted((ROOT / "docs" / "pictures").glob("*.[ps][nv]g"))
EXAMPLE = ROOT / "examples" / "my_algo.py"

#: The commands of these pages run in the plain tests; those of the others are `slow`, and the session `pages` runs all.
CORE_PAGES = {
    "README", "walk-through", "algorithms", "evaluate", "goals", "normalization", "python", "resume", "training",
    "words", "ppo", "dqn", "classic", "state",
}  # fmt: skip

#: The commands of these pages need large or foreign packages: the session with these packages, and their modules.
NEEDS = {
    "envpool": ("envpool", ["envpool"]),
    "pybullet": ("families", ["pybullet_envs_gymnasium"]),
    "dm-control": ("families", ["shimmy", "dm_control"]),
    "robotics": ("families", ["gymnasium_robotics"]),
    "highway": ("families", ["highway_env", "crafter"]),
}
#: The section of the README about plugins: `tests/ecosystem` installs and runs them in its own environment.
PLUGINS = "## As a plugin"
#: Commands that do not run here, and why.
SKIPPED = {
    "python3 -m venv": "this test runs in one",
    "python -m pip install -r": "the session `wheels` installs the packages and runs the main job from there",
    "python -m pip install 'rlplug-cli[tune]'": "this environment has it",
    "python -m pip install nox": "it prepares the next command",
    "python -m nox": "it runs this test",
}
#: Options that make a documented run short: they follow the documented ones, and the last value of an option counts.
SHORT = ("--total-timesteps", "1500", "--eval-every", "1000", "--eval-episodes", "2", "--final-eval-episodes", "2")
#: Options for a run that the test interrupts.
LONG = ("--total-timesteps", "1000000", "--eval-every", "1000", "--eval-episodes", "2", "--final-eval-episodes", "2")
#: MLflow must get the runs of these pages; on all pages it would take most of the time.
#: `tests/wheels/test_main_job.py` checks that it gets the README's first run.
MIRRORED = ("mlflow",)
#: The variable that names the folder of `warm`.
WARM = "RLPLUG_TESTS_WARM"


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its title or an empty string, its lines."""

    language: str
    title: str
    text: str


@dataclass(frozen=True)
class Command:
    """A command line, whether Ctrl-C follows, and the documented output."""

    line: str
    interrupted: bool = False
    printed: tuple[str, ...] = ()


def section(page: Path, heading: str) -> str:
    """Return the section under a heading, or an empty string if the page has no such heading."""
    match = re.search(rf"^{heading}\n.*?(?=^## |\Z)", page.read_text(encoding="utf-8"), re.M | re.S)
    return match[0] if match else ""


def blocks(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a text, including those in lists."""
    pattern = r"^( *)```(\w*)(?: title=(\S+))?\n(.*?)^\1```$"
    for indent, language, title, content in re.findall(pattern, text, re.M | re.S):
        yield Block(language, title, re.sub(f"^{indent}", "", content, flags=re.M))


def examples(page: Path) -> list[Block]:
    """Return the blocks of a page that are files or run, without the README's section about plugins."""
    text = page.read_text(encoding="utf-8").replace(section(page, PLUGINS), "")
    return [block for block in blocks(text) if block.title or block.language in ("sh", "console", "python")]


def commands(block: Block) -> Iterator[Command]:
    """Yield the commands of a block; `a && b` are two."""
    if block.language == "sh":
        for line in block.text.splitlines():
            yield from (Command(part) for part in line.split(" && ") if part)
        return
    for part in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
        line, *printed = part.splitlines()
        yield Command(line, "^C" in printed, tuple(text for text in printed if text != "^C"))


def shorten(command: Command) -> list[str]:
    """Return the words of a command, with options that make it take seconds."""
    words = shlex.split(command.line, comments=True)
    if "rlplug" not in words or "--help" in words:
        return words
    verb, *rest = words[words.index("rlplug") + 1 :]
    if verb in ("run", "sweep", "tune"):
        few = ("--seeds", "2") if "--seeds" in words else ()
        trials = ("--trials", "1") if verb == "tune" else ()
        return [*words, *(LONG if command.interrupted else SHORT), *few, *trials]
    if verb == "resume":
        return [*words, "--total-timesteps", str(newest_step(Path("runs") / rest[0]) + 1000)]
    return [*words, "--port", str(free_port())] if verb == "ui" else words


def newest_step(run: Path) -> int:
    """Return the env step of a run's newest checkpoint."""
    return max(int(path.name.rpartition("-")[2]) for path in (run / "checkpoints").iterdir())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def shorten_script(script: str) -> str:
    """Make the runs of a Python snippet short."""
    script = re.sub(r'(train\("\w+", "[\w-]+")\)', r"\1, {})", script)
    script = re.sub(r"(train\([^{}]*\{[^{}]*?),?\s*\}", r'\1, "total_timesteps": 1500, "eval_episodes": 2}', script)
    return re.sub(r"total_timesteps=[\d_]+", "total_timesteps=2500", script.replace("{, ", "{"))


def assert_runs(command: Command) -> None:
    """Run a command like a shell, and compare its output."""
    words = shorten(command)
    if "ui" in words:
        return serve(words)
    with start(words) as process:
        message = until(process, "steps/s") if command.interrupted else ""
        if command.interrupted:
            process.send_signal(signal.SIGINT)
        message += process.communicate(timeout=PATIENCE)[0]
    assert process.returncode == (130 if command.interrupted else 0), f"{command.line}\n{message}"
    for line in command.printed:
        assert re.search(pattern_of(line), message), f"{command.line}: never printed {line!r}, but\n{message}"


def serve(words: list[str]) -> None:
    """Start the UI, ask for its page, end it."""
    with start(words) as process:
        try:
            url = re.search(r"http://127\.0\.0\.1:\S+", until(process, "newest runs"))
            assert url
            browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            with browser.open(url[0], timeout=PATIENCE) as answer:
                assert b"MLflow" in answer.read()
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 0
        finally:
            process.terminate()  # without this, a failure would wait forever


def start(words: list[str]) -> subprocess.Popen[str]:
    """Start a process in this directory; `warm`'s commands come first in its PATH, then those of this environment."""
    variables = [word for word in words if re.match(r"[A-Z_]+=", word)]
    folders = (os.environ.get(WARM, ""), sysconfig.get_path("scripts"), os.environ["PATH"])
    environment = {**os.environ, "PATH": os.pathsep.join(filter(None, folders))}
    environment |= dict(word.split("=", 1) for word in variables)
    return subprocess.Popen(
        words[len(variables) :], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def until(process: subprocess.Popen[str], text: str) -> str:
    """Return the output of a process up to the line with `text`; the process is killed if it prints none."""
    assert process.stdout is not None
    message = ""
    timer = threading.Timer(PATIENCE, process.kill)
    timer.start()
    try:
        for line in process.stdout:
            message += line
            if text in line:
                return message
    finally:
        timer.cancel()
    raise AssertionError(f"{process.args} never printed {text!r}, but\n{message}")


def pattern_of(line: str) -> str:
    """Return a regular expression for a printed line with any numbers and any spaces between columns."""
    return "".join(map(pattern_of_part, re.split(r"(\d[\d,.]*|…|\s+)", line)))


def pattern_of_part(part: str) -> str:
    if part == "…":
        return ".*"
    if part[:1].isdigit():
        return r"[\d,.]+"
    return r"\s*" if part.isspace() else re.escape(part)


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=() if page.stem in CORE_PAGES else pytest.mark.slow) for page in PAGES if examples(page)],
    ids=lambda page: page.stem,
)
def test_commands_of_page_run(page: Path, warm: Warm, with_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run in forks of one process; `tests/wheels` runs the installed command in new processes."""
    session, modules = NEEDS.get(page.stem, ("", []))
    if missing := [module for module in modules if find_spec(module) is None]:
        pytest.skip(f"`nox -s {session}` has {', '.join(missing)}")
    monkeypatch.setenv(WARM, str(warm.folder))
    if page.stem not in MIRRORED:
        monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    for block in examples(page):
        if block.title:
            Path(block.title).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            Path("snippet.py").write_text(shorten_script(block.text), encoding="utf-8")
            assert_runs(Command("run-script snippet.py"))
        elif block.language in ("sh", "console"):
            for command in commands(block):
                if not command.line.startswith(tuple(SKIPPED)) and not command.line.startswith(". "):
                    assert_runs(command)


def test_blocks_have_known_kinds() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert text.count("```") == 2 * len(list(blocks(text))), page.name
        assert {block.language for block in blocks(text)} <= {"sh", "console", "python", "toml", "text"}, page.name


def test_readme_shows_the_example_file() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (shown,) = (block.text for block in blocks(readme) if block.title == EXAMPLE.name)
    assert shown == EXAMPLE.read_text(encoding="utf-8")
    assert len([line for line in shown.splitlines() if line.strip()]) <= 40


def test_readme_shows_the_ci_command() -> None:
    command = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()[-1]
    assert command in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()


def test_links_point_to_files_and_headings() -> None:
    faults = []
    for page in [*PAGES, *LINKED]:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            name, _, heading = target.partition("#")
            path = page.parent / name if name else page
            if target.startswith("https://"):
                continue
            if not path.exists() or (heading and heading not in headings(path)):
                faults.append(f"{page.name}: {target}")
    assert not faults, faults


def headings(page: Path) -> set[str]:
    """Return the headings of a page in the form that links use."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def options(command: click.Command) -> Iterator[str]:
    """Yield the options of a command and of its subcommands."""
    context = click.Context(command)
    for parameter in command.get_params(context):
        yield from (*parameter.opts, *parameter.secondary_opts)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            subcommand = command.get_command(context, name)
            assert subcommand is not None
            yield from options(subcommand)


def test_named_options_exist() -> None:
    known = {"--yes", *options(app)}
    for page in PAGES:
        text = re.sub(r"^ *```text\n.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        named = {word for word in re.findall(r"(?<![\w-])--[a-z][\w.-]*", text) if not option_name(word)}
        assert named <= known, f"{page.name}: {', '.join(sorted(named - known))}"


def test_pages_for_authors_name_existing_commands_and_options() -> None:
    pip_options = {"--no-build-isolation", "--editable", "--target", "--yes", "--no-index", "--require-hashes"}
    known = pip_options | {*options(app)}
    for page in PLUGIN_PAGES:
        text = page.read_text(encoding="utf-8")
        shell = [block.text for block in blocks(text) if block.language == "sh"]
        code = "\n".join([*re.findall(r"`([^`\n]+)`", text), *shell])
        assert set(re.findall(r"^rlplug ([a-z]+)", code, re.M)) <= COMMANDS.keys(), page.name
        assert set(re.findall(r"(?<![\w-])--[a-z][\w-]*", text)) <= known, page.name


def test_contract_shows_reserved_names_and_bounds() -> None:
    text = (ROOT / "docs" / "plugins" / "contract.md").read_text(encoding="utf-8")
    (line,) = (line for line in text.splitlines() if line.startswith("| options |"))
    assert set(re.findall(r"`([a-z_]+)`", line)) == reserved.COMMAND_LINE
    assert f'"rlplug-core{bounds(__version__)}"' in text
    assert f'"rlplug-core{bounds("1.3.0")}"' in text


def test_each_algorithm_has_a_page() -> None:
    """The overview links each algorithm to a page that names it."""
    overview = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| \[(`.+`)\]\(([^)#]+)[^)]*\) \|", overview, re.M)
    ids = set()
    for names, target in lines:
        text = (ROOT / "docs" / target).read_text(encoding="utf-8")
        ids |= {name for name in re.findall(r"`([\w-]+)`", names) if f"`{name}`" in text}
    assert ids == set(KNOWN["algorithms"])
    assert {(ROOT / "docs" / target) for _, target in lines} == set(ALGORITHMS)


def test_quoted_lines_are_in_the_named_file() -> None:
    faults = []
    for page in ALGORITHMS:
        quotes = re.findall(r"\]\((\S+\.py)\):\n\n```text\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
        assert quotes, page.name
        for target, text in quotes:
            source = {line.strip() for line in (page.parent / target).read_text(encoding="utf-8").splitlines()}
            faults += [f"{page.name}: {line}" for line in text.splitlines() if line.strip() not in source]
    assert not faults, faults


def test_index_names_every_decision() -> None:
    index = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in DECISIONS if page.name != "README.md" and f"]({page.name})" not in index] == []


def test_pages_show_every_learning_curve() -> None:
    shown = {
        target for page in ALGORITHMS for target in re.findall(r"/(curves-\S+)\)", page.read_text(encoding="utf-8"))
    }
    assert shown == {path.name for path in PICTURES if path.name.startswith("curves-")}
    assert shown == {f"curves-{page.stem}.svg" for page in ALGORITHMS}


def test_pictures_are_small() -> None:
    assert PICTURES
    assert [path.name for path in PICTURES if path.stat().st_size > 400_000] == []
    assert [path.name for path in PICTURES if path.match("curves-*") and path.stat().st_size > 80_000] == []
