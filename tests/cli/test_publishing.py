"""The workflows, issue forms and release script match the repository."""

from __future__ import annotations

import ast
import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
PYTHON = "Programming Language :: Python :: 3."


def read(path: Path) -> dict[str, Any]:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(content, dict), path
    return content


def project(root: Path, package: str) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((root / package / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table


@pytest.fixture(scope="module")
def release() -> ModuleType:
    """The module `.ci/release.py`."""
    spec = importlib.util.spec_from_file_location("release", ROOT / ".ci" / "release.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path, release: ModuleType) -> Path:
    """A copy of the files that releases change."""
    for package in (*release.PACKAGES, "rlplug-cem"):
        for path in release.changes(ROOT, package, "99.0.0", "2026-01-31"):
            copy = tmp_path / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
    return tmp_path


def write(texts: dict[Path, str]) -> None:
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")


def test_all_files_name_the_same_version(release: ModuleType) -> None:
    assert read(ROOT / "CITATION.cff")["version"] == release.version_of(ROOT, "rlplug")
    for path in ROOT.glob("rlplug-*/src/rlplug_*/__init__.py"):
        version = release.version_of(ROOT, path.parent.name.replace("_", "-"))
        assert set(re.findall(r'^__version__ = "(.+)"', path.read_text(encoding="utf-8"), re.M)) <= {version}


def test_release_changes_one_package(release: ModuleType, tree: Path) -> None:
    for package, folder in (("rlplug-algos", "rlplug-algos"), ("rlplug-cem", "examples/rlplug-cem")):
        texts = release.changes(tree, package, "0.1.1", "2026-01-31")
        assert {path.relative_to(tree).parts[: folder.count("/") + 1] for path in texts} == {tuple(folder.split("/"))}
        write(texts)
        assert project(tree, folder)["version"] == "0.1.1"
        assert "## 0.1.1 (2026-01-31)" in (tree / folder / "CHANGELOG.md").read_text(encoding="utf-8")
    write(release.changes(tree, "rlplug-core", "0.2.0", "2026-01-31"))
    assert '\n__version__ = "0.2.0"\n' in (tree / "rlplug-core/src/rlplug_core/__init__.py").read_text(encoding="utf-8")
    write(release.changes(tree, "rlplug", "0.2.0", "2026-01-31"))
    cited = read(tree / "CITATION.cff")
    assert (cited["version"], str(cited["date-released"])) == ("0.2.0", "2026-01-31")
    with pytest.raises(ValueError, match="package 'rlplug-nothing' does not exist"):
        release.changes(tree, "rlplug-nothing", "0.2.0", "2026-01-31")


def test_release_dates_the_unreleased_changes(release: ModuleType) -> None:
    log = "# Change log\n\n## Unreleased\n\n- This.\n"
    first = release.with_release(log, "0.2.0", "2026-01-31")
    assert first == "# Change log\n\n## Unreleased\n\n## 0.2.0 (2026-01-31)\n\n- This.\n"
    second = release.with_release(first, "0.3.0", "2026-02-28")
    assert second == (
        "# Change log\n\n## Unreleased\n\n## 0.3.0 (2026-02-28)\n\n- No change but the version.\n"
        "\n## 0.2.0 (2026-01-31)\n\n- This.\n"
    )


@pytest.mark.parametrize(
    ("version", "why"), [("0.0.9", "not above"), ("next", "not a version"), ("0.2.0rc1", "not a version")]
)
def test_version_must_be_higher(release: ModuleType, version: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        release.changes(ROOT, "rlplug-core", version, "2026-01-31")


def test_tag_needs_a_version_with_a_change_log(release: ModuleType, tree: Path) -> None:
    write(release.changes(tree, "rlplug-envs", "0.2.0", "2026-01-31"))
    with pytest.raises(ValueError, match=r"names rlplug\.example"):
        release.check_tag(tree, "rlplug-envs-v0.2.0")
    path = tree / "rlplug-envs" / "pyproject.toml"
    path.write_text(path.read_text(encoding="utf-8").replace("rlplug.example", "host.org/rlplug"), encoding="utf-8")
    assert release.check_tag(tree, "rlplug-envs-v0.2.0") == 0
    with pytest.raises(ValueError, match=r"the tag is rlplug-envs-v0\.3\.0"):
        release.check_tag(tree, "rlplug-envs-v0.3.0")
    with pytest.raises(ValueError, match=r"the change log of rlplug-algos has no 0\.1\.0"):
        release.check_tag(tree, "rlplug-algos-v0.1.0")


def test_script_shows_changes_without_writing() -> None:
    before = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    result = subprocess.run(
        [sys.executable, str(ROOT / ".ci" / "release.py"), "rlplug", "99.0.0"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert '+version = "99.0.0"' in result.stdout
    assert (ROOT / "CITATION.cff").read_text(encoding="utf-8") == before


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_permissions_are_minimal(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert set(job) >= {"runs-on", "steps"}
        assert all(("uses" in step) != ("run" in step) for step in job["steps"])
        assert "id-token" not in job.get("permissions", {}) or "environment" in job


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_names_existing_sessions(path: Path) -> None:
    nox = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    sessions = set(re.findall(r'@nox\.session\(name="([\w-]+)"', nox)) | set(
        re.findall(r"^def (\w+)\(session", nox, re.M)
    )
    runs = [step["run"] for job in read(path)["jobs"].values() for step in job["steps"] if "run" in step]
    named = [
        name for run in runs for names in re.findall(r"nox -s ([\w -]+?)(?:$| -- )", run) for name in names.split()
    ]
    assert set(named) <= sessions, named


def test_session_requires_what_its_notified_sessions_require() -> None:
    """nox does not run the requirements of a session that `notify` adds."""
    functions = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8")).body
    sessions = {each.name: each for each in functions if isinstance(each, ast.FunctionDef)}
    loop = next(each for each in sessions["nightly"].body if isinstance(each, ast.For))
    for name in ast.literal_eval(loop.iter):
        assert required(sessions[name]) <= required(sessions["nightly"]), name


def required(session: ast.FunctionDef) -> set[str]:
    """Return the names in `requires` of a session's decorator."""
    keywords = [each for call in session.decorator_list if isinstance(call, ast.Call) for each in call.keywords]
    return {name for each in keywords if each.arg == "requires" for name in ast.literal_eval(each.value)}


def test_declared_pythons_are_tested(release: ModuleType) -> None:
    tested = read(GITHUB / "workflows" / "tests.yml")["jobs"]["linux"]["strategy"]["matrix"]["python"]
    for package in release.PACKAGES:
        table = project(ROOT, package)
        declared = [name.removeprefix(PYTHON) for name in table["classifiers"] if name.startswith(PYTHON)]
        assert declared
        assert {f"3.{minor}" for minor in declared} <= set(tested)
        assert table["requires-python"] == f">={tested[0]}"


def test_pre_commit_has_the_ruff_version_of_lint() -> None:
    (hooks,) = read(ROOT / ".pre-commit-config.yaml")["repos"]
    assert f"\nruff=={hooks['rev'].removeprefix('v')}\n" in (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert [hook["id"] for hook in hooks["hooks"]] == ["ruff-check", "ruff-format"]


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_issue_form_has_required_fields(path: Path) -> None:
    form = read(path)
    assert form["name"]
    assert form["description"]
    questions = [field for field in form["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in questions}) == len(questions)
    assert any(field.get("validations", {}).get("required") for field in questions)


def test_citation_file_is_complete() -> None:
    assert set(read(ROOT / "CITATION.cff")) >= {"cff-version", "message", "title", "authors", "version", "license"}
