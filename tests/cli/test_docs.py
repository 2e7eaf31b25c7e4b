"""The documentation is correct: its commands and snippets run, its links and options exist.

Every fenced block of the README, `docs/*.md`, `docs/algorithms/*.md`, `docs/environments/*.md` and of some pages for
authors is run, page by page, in an empty directory.
What is run is what is written, made shorter by `shortened` and `abridged` alone. Known kinds of blocks:

    sh        commands, one per line
    console   commands after `$ `, then what they print: `…` stands for anything, numbers for any number; `^C` is Ctrl-C
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
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from rlplug_cli.app import app
from rlplug_cli.arguments import option_name
from rlplug_core.plugins.known import KNOWN
from tests.cli.documents import options
from tests.conftest import Warm
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
ALGORITHMS = sorted((ROOT / "docs" / "algorithms").glob("*.md"))
FAMILIES = sorted((ROOT / "docs" / "environments").glob("*.md"))
#: Pages for authors of plugins whose examples need no installation; `tests/ecosystem` runs the tutorial.
PARTS = ("off-policy", "signals", "state", "controllers", "memories")
AUTHORS = [ROOT / "docs" / "plugins" / f"{name}.md" for name in PARTS]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *ALGORITHMS, *FAMILIES, *AUTHORS]
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
#: Pages of which only the links are looked at here.
LINKED = [*DECISIONS, ROOT / "CONTRIBUTING.md", *sorted({*(ROOT / "docs" / "plugins").glob("*.md")} - {*AUTHORS})]
PICTURES = sorted((ROOT / "docs" / "pictures").glob("*.[ps][nv]g"))
EXAMPLE = ROOT / "examples" / "my_algo.py"

#: Pages whose commands the plain tests run; those of all others are `slow`, and the session `pages` runs all.
CORE_PAGES = {
    "README", "walk-through", "algorithms", "evaluate", "goals", "normalization", "python", "resume", "training",
    "words", "ppo", "dqn", "classic", "state",
}  # fmt: skip

#: Pages whose commands need packages that are large or not rlplug's: the session that has them, and their modules.
NEEDS = {
    "envpool": ("envpool", ["envpool"]),
    "pybullet": ("families", ["pybullet_envs_gymnasium"]),
    "dm-control": ("families", ["shimmy", "dm_control"]),
    "robotics": ("families", ["gymnasium_robotics"]),
    "highway": ("families", ["highway_env", "crafter"]),
}
#: The section of the README whose plugins are installed and run in `tests/ecosystem`, where an environment is to spare.
PLUGINS = "## As a plugin"
#: Commands that are not run here, and why.
ELSEWHERE = {
    "python3 -m venv": "the environment that runs this test is one",
    "python -m pip install -r": "the session `wheels` installs the packages and runs the main job from there",
    "python -m pip install 'rlplug-cli[tune]'": "this environment has it",
    "python -m pip install nox": "it comes before the next one",
    "python -m nox": "it runs this test",
}
#: What makes a documented run short: it is put behind what is written, and the last value of an option counts.
SHORT = ("--total-timesteps", "1500", "--eval-every", "1000", "--eval-episodes", "2", "--final-eval-episodes", "2")
#: And one that is to be interrupted, long enough.
LONG = ("--total-timesteps", "1000000", "--eval-every", "1000", "--eval-episodes", "2", "--final-eval-episodes", "2")
#: Pages whose runs MLflow must get; elsewhere it would be most of the time. `tests/wheels/test_main_job.py` checks that
#: it gets the README's first run.
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
    """What is typed, whether Ctrl-C follows, and what is said to be printed."""

    line: str
    interrupted: bool = False
    printed: tuple[str, ...] = ()


def section(page: Path, heading: str) -> str:
    """What a page says under a heading, or nothing where it has no such heading."""
    found = re.search(rf"^{heading}\n.*?(?=^## |\Z)", page.read_text(encoding="utf-8"), re.M | re.S)
    return found[0] if found else ""


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a text, those in lists too."""
    pattern = r"^( *)```(\w*)(?: title=(\S+))?\n(.*?)^\1```$"
    for indent, language, title, content in re.findall(pattern, text, re.M | re.S):
        yield Block(language, title, re.sub(f"^{indent}", "", content, flags=re.M))


def examples(page: Path) -> list[Block]:
    """Return the blocks of a page that are files or run, without the README's section of plugins."""
    text = page.read_text(encoding="utf-8").replace(section(page, PLUGINS), "")
    return [block for block in blocks(text) if block.title or block.language in ("sh", "console", "python")]


def commands(block: Block) -> Iterator[Command]:
    """The commands of a block; `a && b` are two."""
    if block.language == "sh":
        for line in block.text.splitlines():
            yield from (Command(part) for part in line.split(" && ") if part)
        return
    for part in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
        line, *printed = part.splitlines()
        yield Command(line, "^C" in printed, tuple(text for text in printed if text != "^C"))


def shortened(command: Command) -> list[str]:
    """A command's words, such that it takes seconds."""
    words = shlex.split(command.line, comments=True)
    if "rlplug" not in words or "--help" in words:
        return words
    verb, *rest = words[words.index("rlplug") + 1 :]
    if verb in ("run", "sweep", "tune"):
        few = ("--seeds", "2") if "--seeds" in words else ()
        trials = ("--trials", "1") if verb == "tune" else ()
        return [*words, *(LONG if command.interrupted else SHORT), *few, *trials]
    if verb == "resume":
        return [*words, "--total-timesteps", str(newest(Path("runs") / rest[0]) + 1000)]
    return [*words, "--port", str(free_port())] if verb == "ui" else words


def newest(run: Path) -> int:
    """The env step of a run's newest checkpoint."""
    return max(int(path.name.rpartition("-")[2]) for path in (run / "checkpoints").iterdir())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def abridged(script: str) -> str:
    """A Python snippet with short runs."""
    script = re.sub(r'(train\("\w+", "[\w-]+")\)', r"\1, {})", script)
    script = re.sub(r"(train\([^{}]*\{[^{}]*?),?\s*\}", r'\1, "total_timesteps": 1500, "eval_episodes": 2}', script)
    return re.sub(r"total_timesteps=[\d_]+", "total_timesteps=2500", script.replace("{, ", "{"))


def assert_runs(command: Command) -> None:
    """Run a command as a shell would, and compare what it prints."""
    words = shortened(command)
    if "ui" in words:
        return serve(words)
    with start(words) as process:
        said = until(process, "steps/s") if command.interrupted else ""
        if command.interrupted:
            process.send_signal(signal.SIGINT)
        said += process.communicate(timeout=PATIENCE)[0]
    assert process.returncode == (130 if command.interrupted else 0), f"{command.line}\n{said}"
    for line in command.printed:
        assert re.search(pattern_of(line), said), f"{command.line}: never printed {line!r}, but\n{said}"


def serve(words: list[str]) -> None:
    """Start the UI, ask for its page, end it."""
    with start(words) as process:
        try:
            url = re.search(r"http://127\.0\.0\.1:\S+", until(process, "MLflow UI"))
            assert url
            browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            with browser.open(url[0], timeout=PATIENCE) as answer:
                assert b"MLflow" in answer.read()
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 0
        finally:
            process.terminate()  # or a failure would wait for it for ever


def start(words: list[str]) -> subprocess.Popen[str]:
    """A process in this directory, with the commands of this environment before all others but those of `warm`."""
    variables = [word for word in words if re.match(r"[A-Z_]+=", word)]
    folders = (os.environ.get(WARM, ""), sysconfig.get_path("scripts"), os.environ["PATH"])
    environment = {**os.environ, "PATH": os.pathsep.join(filter(None, folders))}
    environment |= dict(word.split("=", 1) for word in variables)
    return subprocess.Popen(
        words[len(variables) :], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def until(process: subprocess.Popen[str], text: str) -> str:
    """What a process says until `text` is in it."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if text in line:
            return said
    raise AssertionError(f"{process.args} never said {text!r}, but\n{said}")


def pattern_of(line: str) -> str:
    """What a printed line looks like, whatever its numbers are and however its columns are spaced."""
    parts = re.split(r"(\d[\d,.]*|…|\s+)", line)
    wild = {"…": ".*"}
    return "".join(
        wild.get(part, r"[\d,.]+" if part[:1].isdigit() else r"\s*" if part.isspace() else re.escape(part))
        for part in parts
    )


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=() if page.stem in CORE_PAGES else pytest.mark.slow) for page in PAGES if examples(page)],
    ids=lambda page: page.stem,
)
def test_commands_of_a_page_run(page: Path, warm: Warm, with_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run in forks of one process; `tests/wheels` runs the installed command in processes of its own."""
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
            Path("snippet.py").write_text(abridged(block.text), encoding="utf-8")
            assert_runs(Command("run-script snippet.py"))
        elif block.language in ("sh", "console"):
            for command in commands(block):
                if not command.line.startswith(tuple(ELSEWHERE)) and not command.line.startswith(". "):
                    assert_runs(command)


def test_every_block_is_of_a_known_kind() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert text.count("```") == 2 * len(list(blocks(text))), page.name
        assert {block.language for block in blocks(text)} <= {"sh", "console", "python", "toml", "text"}, page.name


def test_the_readme_holds_the_example_word_for_word() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (shown,) = (block.text for block in blocks(readme) if block.title == EXAMPLE.name)
    assert shown == EXAMPLE.read_text(encoding="utf-8")
    assert len([line for line in shown.splitlines() if line.strip()]) <= 40


def test_the_readme_shows_the_command_that_continuous_integration_runs() -> None:
    command = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()[-1]
    assert command in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()


def test_links_lead_to_files_and_headings() -> None:
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
    """The headings of a page as links name them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_option_that_is_named_exists() -> None:
    known = {"--yes", *options(app)}
    for page in PAGES:
        text = re.sub(r"^ *```text\n.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        named = {word for word in re.findall(r"(?<![\w-])--[a-z][\w.-]*", text) if not option_name(word)}
        assert named <= known, f"{page.name}: {', '.join(sorted(named - known))}"


def test_every_algorithm_has_its_place_in_the_documentation() -> None:
    """A line of a table that leads to a page of which it is the subject."""
    overview = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| \[(`.+`)\]\(([^)#]+)[^)]*\) \|", overview, re.M)
    found = set()
    for names, target in lines:
        text = (ROOT / "docs" / target).read_text(encoding="utf-8")
        found |= {name for name in re.findall(r"`([\w-]+)`", names) if f"`{name}`" in text}
    assert found == set(KNOWN["algorithms"])
    assert {(ROOT / "docs" / target) for _, target in lines} == set(ALGORITHMS)


def test_lines_that_a_page_quotes_are_in_the_file_it_names() -> None:
    faults = []
    for page in ALGORITHMS:
        quotes = re.findall(r"\]\((\S+\.py)\):\n\n```text\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
        assert quotes, page.name
        for target, text in quotes:
            source = {line.strip() for line in (page.parent / target).read_text(encoding="utf-8").splitlines()}
            faults += [f"{page.name}: {line}" for line in text.splitlines() if line.strip() not in source]
    assert not faults, faults


def test_the_index_names_every_decision() -> None:
    index = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in DECISIONS if page.name != "README.md" and f"]({page.name})" not in index] == []


def test_a_page_shows_every_learning_curve() -> None:
    shown = {
        target for page in ALGORITHMS for target in re.findall(r"/(curves-\S+)\)", page.read_text(encoding="utf-8"))
    }
    assert shown == {path.name for path in PICTURES if path.name.startswith("curves-")}
    assert shown == {f"curves-{page.stem}.svg" for page in ALGORITHMS}


def test_pictures_are_small() -> None:
    assert PICTURES
    assert [path.name for path in PICTURES if path.stat().st_size > 400_000] == []
    assert [path.name for path in PICTURES if path.match("curves-*") and path.stat().st_size > 80_000] == []
