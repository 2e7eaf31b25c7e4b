"""`rlplug new` writes valid files and refuses invalid names; `tests/ecosystem` uses the packages that it makes."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlplug_cli import scaffold
from rlplug_core import __version__, plugins
from rlplug_core.testing.distributions import write_distribution

#: All kinds in all their forms.
FORMS = [(kind, form) for kind, about in scaffold.KINDS.items() for form in about.forms or ("",)]


@pytest.mark.parametrize(("kind", "form"), FORMS)
def test_generated_files_are_valid(kind: str, form: str, tmp_path: Path) -> None:
    root, files = scaffold.generate(kind, "rlplug-a-thing", tmp_path, form)
    assert root == tmp_path / "rlplug-a-thing"
    for path in ("LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "noxfile.py", ".gitignore"):
        assert path in files
    for name in ("ci", "release", "weekly"):
        workflow = yaml.safe_load(files[f".github/workflows/{name}.yml"])
        assert workflow["permissions"] == {"contents": "read"}
        for job in workflow["jobs"].values():
            assert all(("uses" in step) != ("run" in step) for step in job["steps"])
            assert "id-token" not in job.get("permissions", {}) or job["environment"] == "pypi"
    assert "src/rlplug_a_thing/py.typed" in files
    for path, text in files.items():
        assert (root / path).read_text(encoding="utf-8") == text
        assert "$" not in re.sub(r"\$\{\{ (matrix\.python|vars\.RLPLUG_SOURCE) \}\}", "", text), path
        if path.endswith(".py"):
            compile(text, path, "exec")
    project = tomllib.loads(files["pyproject.toml"])["project"]
    assert project["dependencies"][0] == f"rlplug-core{scaffold.bounds(__version__)}"
    assert set(project["urls"]) == {"Homepage", "Changelog"}
    assert list(project["entry-points"]) == ["rlplug.contract", f"rlplug.{scaffold.KINDS[kind].group}"]


@pytest.mark.parametrize(("kind", "form"), FORMS)
def test_lines_are_short_with_the_longest_name(kind: str, form: str) -> None:
    name = "-".join(["abcdefgh"] * 3)[: scaffold.LONGEST]
    for path, text in scaffold.render_files(kind, name, form).items():
        if path.endswith(".py"):
            assert [line for line in text.splitlines() if len(line) > 120] == [], path


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("algorithm", "My Idea", r"as in 'my-idea'$"),
        ("algorithm", "two--hyphens", r"as in 'two-hyphens'$"),
        ("algorithm", "../up", r"as in 'up'$"),
        ("algorithm", "9lives", r"as in 'lives'$"),
        ("algorithm", "x" * 25, r"too long"),
        ("algorithm", "ppo", r"algorithm of rlplug-algos; choose another one$"),
        ("env", "gymnasium", r"environment provider of rlplug-envs"),
        ("hooks", "mlflow", r"hook plugin of rlplug-cli"),
        ("env", "rlplug-envs", r"rlplug-envs is a package of rlplug itself"),
        ("algorithm", "class-var", r"the name ClassVar to two things"),
        ("env", "provider", r"the name Provider to two things"),
        ("hooks", "exception", r"the name Exception to two things"),
        ("wrapper", "frame-stack", r"wrapper of rlplug-envs"),
        ("wrapper", "timestep", r"the name Timestep to two things"),
        ("memory", "gru", r"memory of rlplug-core"),
        ("network", "space", r"the name Space to two things"),
        ("agent", "some-agent", r"'agent' is not one of"),
    ],
)
def test_invalid_name_prints_one_sentence(
    rlplug: Callable[..., Any], place: Path, kind: str, name: str, message: str
) -> None:
    result = rlplug("new", kind, name)
    assert result.code == 2
    assert re.search(message, result.err.strip()), result.err
    assert len(result.err.splitlines()) == 1
    assert list(place.iterdir()) == []


def test_kind_option_selects_rollout_or_replay(rlplug: Callable[..., Any], place: Path) -> None:
    for form, batch in (("rollout", "rl.Rollout"), ("replay", "rl.Transitions")):
        assert rlplug("new", "algorithm", f"from-{form}", "--kind", form).code == 0
        package = place / f"rlplug-from-{form}" / "src" / f"rlplug_from_{form}"
        code = (package / "algorithm.py").read_text(encoding="utf-8")
        assert f"rl.Algorithm[{batch}]" in code
    for kind, form, message in (
        ("hooks", "replay", "'hooks' comes in one form; choose it for an algorithm"),
        ("algorithm", "tensor", "'algorithm' comes in the forms rollout and replay; choose it for an environment"),
    ):
        result = rlplug("new", kind, "mine", "--kind", form)
        assert result.code == 2
        assert f"--kind {form}: {message}" in result.err


def test_name_of_an_installed_plugin_is_refused(
    rlplug: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = {"rlplug.algorithms": {"sarsa": "other:Sarsa"}}
    write_distribution(tmp_path / "site", "other-plugin", points, {"other.py": ""})
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    plugins.refresh()
    assert "algorithm 'sarsa' of other-plugin 1.0 is installed" in rlplug("new", "algorithm", "sarsa").err
    assert rlplug("new", "env", "sarsa").code == 0


def test_existing_folder_is_not_overwritten(rlplug: Callable[..., Any], place: Path) -> None:
    mine = place / "here" / "rlplug-mine"
    mine.mkdir(parents=True)
    result = rlplug("new", "hooks", "mine", "--out", "here")
    assert result.code == 2
    assert "here/rlplug-mine exists already" in result.err
    assert list(mine.iterdir()) == []


def test_output_names_the_next_commands(rlplug: Callable[..., Any]) -> None:
    result = rlplug("new", "env", "grid", "--out", "plugins")
    assert result.code == 0
    assert result.out.splitlines()[1:] == [
        "  python -m pip install --editable plugins/rlplug-grid",
        "  rlplug run a2c grid/Grid-v0",
    ]


@pytest.mark.parametrize(
    ("version", "expected"), [("0.1.0", ">=0.1,<1"), ("0.12.3", ">=0.12,<1"), ("1.4.2", ">=1.4,<2")]
)
def test_version_bounds_of_the_core(version: str, expected: str) -> None:
    assert scaffold.bounds(version) == expected
