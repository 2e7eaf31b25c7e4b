"""Discovery scans installed metadata once; a plugin with a fault keeps its name."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import PathDistribution, entry_points
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

import rlplug_core
from rlplug_core import plugins
from rlplug_core.errors import MissingPackage, PluginError, UsageError, plain
from rlplug_core.plugins import discovery, index, names
from rlplug_core.plugins.records import GROUPS, Record
from rlplug_core.plugins.switches import Switches
from rlplug_core.testing.distributions import write_distribution

VERSIONS = st.lists(st.integers(0, 3).map(str), min_size=1, max_size=4).map(".".join)
LEARNER = """
class Config: ...
class {name}:
    '''A learner of nothing (arXiv:1234.5678).'''
    Config = Config
    runners = ("sync",)
    def agent(self, rank=0, ranks=1): ...
    def buffer(self): ...
    def update(self, batch, clock): ...
    def state_dict(self): ...
    def load_state_dict(self, state): ...
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a directory on the path; distributions in it are installed after `refresh`."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("RLPLUG_PLUGINS", raising=False)
    monkeypatch.delenv("RLPLUG_DISABLED_PLUGINS", raising=False)
    monkeypatch.setenv("RLPLUG_CONFIG", str(tmp_path / "config.toml"))
    before = set(sys.modules)
    yield tmp_path
    monkeypatch.undo()
    for name in set(sys.modules) - before:
        del sys.modules[name]
    plugins.refresh()


@pytest.fixture
def install(site: Path) -> Callable[..., None]:
    def installer(name: str, algorithm: str = "", text: str = "", **more: object) -> None:
        package = name.replace("-", "_")
        points = {"rlplug.algorithms": {algorithm: f"{package}.{algorithm}:Algo"}} if algorithm else {}
        files = {f"{package}/__init__.py": "", f"{package}/{algorithm}.py": text or LEARNER.format(name="Algo")}
        extra: Mapping[str, object] = {"entry_points": points, "files": files} | more
        write_distribution(site, name, **extra)  # type: ignore[arg-type]
        plugins.refresh()

    return installer


def find_record(name: str) -> Record:
    return plugins.find("algorithms", name)


def test_finds_and_loads_plugin_by_each_of_its_names(install: Callable[..., None]) -> None:
    install("rlplug-foo", "foo")
    assert find_record("foo").status == "ok"
    for name in ("foo", "rlplug-foo/foo", "rlplug_foo.foo:Algo"):
        assert plugins.algorithm(name).__module__ == "rlplug_foo.foo"


def test_finding_does_not_import_the_plugin(install: Callable[..., None]) -> None:
    install("rlplug-foo", "foo", "raise SystemExit(9)")
    assert find_record("foo").status == "ok"
    assert "rlplug_foo" not in sys.modules


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def broken(:\n", "SyntaxError"),
        ("raise SystemExit('no license')", "SystemExit: no license"),
        ("raise RuntimeError('\\x1b[31mred')", "RuntimeError: [31mred"),
        ("x = 1", "has no 'Algo'"),
        ("class Algos: ...", "did you mean 'Algos'?"),
        ("Algo = 3", "is not a class"),
        ("class Algo: ...", "it has no 'Config', 'runners', 'agent', 'buffer', 'update'"),
        ("import rlplug_foo.absent", "No module named 'rlplug_foo.absent'; reinstall it"),
        ("import absent_package", "needs the package 'absent_package', which is not installed, and rlplug-foo"),
    ],
)
def test_plugin_that_cannot_be_loaded_raises(install: Callable[..., None], text: str, reason: str) -> None:
    install("rlplug-foo", "foo", text)
    with pytest.raises(PluginError) as caught:
        plugins.algorithm("foo")
    assert caught.value.exit_code == 3
    assert "algorithm 'foo' of rlplug-foo 1.0" in str(caught.value)
    assert reason in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("requirement", "line"),
    [("absent-package>=2", "'absent-package>=2'"), ("absent-package; extra == 'sea'", "'rlplug-foo[sea]'")],
)
def test_missing_requirement_names_the_pip_command(install: Callable[..., None], requirement: str, line: str) -> None:
    install("rlplug-foo", "foo", "import absent_package", requires=[requirement])
    with pytest.raises(PluginError, match="python -m pip install") as caught:
        plugins.algorithm("foo")
    assert str(caught.value).endswith(f"python -m pip install {line}")


def test_module_of_a_later_core_names_the_upgrade_command(install: Callable[..., None]) -> None:
    install("rlplug-foo", "foo", "import rlplug_core.later", requires=["rlplug-core>=0.1"])
    with pytest.raises(PluginError, match="the installed version of 'rlplug_core' does") as caught:
        plugins.algorithm("foo")
    assert str(caught.value).endswith("python -m pip install --upgrade rlplug-core rlplug-foo")


def test_output_during_import_goes_to_stderr(install: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    install("rlplug-foo", "foo", "print('hello')\n" + LEARNER.format(name="Algo"))
    plugins.algorithm("foo")
    assert capsys.readouterr() == ("", "hello\n")


def test_unmet_requirement_of_core_is_incompatible(install: Callable[..., None]) -> None:
    install("rlplug-foo", "foo", "raise SystemExit", requires=["numpy", "rlplug_core >=99"])
    assert find_record("foo").status == "incompatible"
    with pytest.raises(PluginError, match=r"needs rlplug-core>=99, installed is .*--upgrade rlplug-core rlplug-foo"):
        plugins.algorithm("foo")


@pytest.mark.parametrize(
    ("contract", "reason"),
    [
        ("99", "written for contract 99 of plugins, and rlplug-core"),
        ("0", "and supports"),
        ("next", "its contract 'next' is not a number"),
        ("9" * 5000, "is not a number"),
        (str(index.CONTRACT), ""),
        (str(index.OLDEST_CONTRACT), ""),
    ],
)
def test_declared_contract_is_checked_without_import(
    install: Callable[..., None], site: Path, contract: str, reason: str
) -> None:
    install("rlplug-foo", "foo", "raise SystemExit")
    (points,) = site.glob("rlplug_foo*.dist-info/entry_points.txt")
    points.write_text(f"{points.read_text()}\n[{discovery.DECLARED}]\n{contract} = rlplug_foo\n")
    plugins.refresh()
    assert find_record("foo").status == ("incompatible" if reason else "ok")
    assert reason in find_record("foo").reason
    if reason:
        with pytest.raises(PluginError, match=r"is incompatible: .*--upgrade rlplug-core rlplug-foo"):
            plugins.algorithm("foo")


@pytest.mark.parametrize(
    "requirement",
    [
        "rlplug-core", "rlplug_core >=0.1, <1", "Rlplug.Core<0.2.0,>=0.1", "rlplug-core!=9", "rlplug-core-extra>=99",
        "rlplug-core>=99; python_version < '3'",
    ],
)  # fmt: skip
def test_met_requirements_are_ok(install: Callable[..., None], requirement: str) -> None:
    install("rlplug-foo", "foo", requires=[requirement])
    assert find_record("foo").status == "ok"


@given(st.lists(st.tuples(st.sampled_from([">=", "<"]), VERSIONS), min_size=1, max_size=3), VERSIONS)
def test_bounds_agree_with_packaging(bounds: list[tuple[str, str]], version: str) -> None:
    """Common requirements are checked without loading a parser."""
    line = ",".join(sign + version for sign, version in bounds)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rlplug_core, "__version__", version)
        assert discovery._is_surely_met(f"rlplug-core{line}") == SpecifierSet(line).contains(version)


@pytest.mark.parametrize(
    ("environment", "names"),
    [
        ({"RLPLUG_DISABLED_PLUGINS": "rlplug_foo"}, "RLPLUG_DISABLED_PLUGINS"),
        ({"RLPLUG_DISABLED_PLUGINS": "x, foo"}, "RLPLUG_DISABLED_PLUGINS"),
        ({"RLPLUG_DISABLED_PLUGINS": "rlplug-foo/foo"}, "RLPLUG_DISABLED_PLUGINS"),
        ({"RLPLUG_PLUGINS": ""}, "RLPLUG_PLUGINS does not list it"),
        ({"RLPLUG_PLUGINS": "other"}, "RLPLUG_PLUGINS does not list it"),
    ],
)
def test_disabled_plugin_is_not_imported(
    install: Callable[..., None], monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], names: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    install("rlplug-foo", "foo", "raise SystemExit")
    assert find_record("foo").status == "disabled"
    with pytest.raises(PluginError, match=f"is disabled: .*{names}"):
        plugins.algorithm("foo")


def test_config_file_disables_plugins(install: Callable[..., None], site: Path) -> None:
    (site / "config.toml").write_text("[plugins]\ndisabled = ['rlplug-foo']\n")
    install("rlplug-foo", "foo")
    assert find_record("foo").reason == f"'rlplug-foo' is disabled by {site / 'config.toml'}"


def test_allowlist_keeps_first_party_plugins() -> None:
    policy = Switches.read({"RLPLUG_PLUGINS": "rlplug_foo", "RLPLUG_CONFIG": "/nowhere"})
    assert policy.reason("rlplug-foo", "x") == policy.reason("rlplug-algos", "a2c") == ""
    assert policy.reason("rlplug-bar", "y")


def test_first_party_ids_are_reserved(install: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "rlplug_algos"]:
        monkeypatch.delitem(sys.modules, name)  # the real one, if another test imported it
    install("rlplug-algos", "ppo")
    install("rlplug-foo", "ppo")
    assert find_record("ppo").distribution == "rlplug-algos"
    assert find_record("rlplug-foo/ppo").status == "shadowed"
    assert plugins.algorithm("rlplug-foo/ppo").__module__ == "rlplug_foo.ppo"
    assert plugins.algorithm("ppo").__module__ == "rlplug_algos.ppo"


def test_missing_reserved_id_names_its_package(install: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "records", lambda: ())
    with pytest.raises(UsageError, match=r"no algorithm 'ppo' is installed; it comes with: .* install rlplug-algos"):
        plugins.algorithm("ppo")


def test_two_plugins_of_one_name_raise(install: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    install("rlplug-foo", "foo")
    install("rlplug-bar", "foo")
    with pytest.raises(UsageError, match="write 'rlplug-bar/foo' or 'rlplug-foo/foo'"):
        plugins.algorithm("foo")
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "rlplug-bar")
    plugins.refresh()
    assert plugins.algorithm("foo").__module__ == "rlplug_foo.foo"


def test_unknown_name_suggests_similar_ones() -> None:
    with pytest.raises(UsageError, match=r"no algorithm 'a3' is installed; did you mean .*'a3c'"):
        plugins.algorithm("a3")


def test_first_copy_on_the_path_counts(install: Callable[..., None], site: Path) -> None:
    install("rlplug-foo", "foo")
    points = {"rlplug.algorithms": {"old": "rlplug_foo.old:X"}}
    write_distribution(site / "later", "rlplug-foo", points, {}, version="0.9")
    sys.path.append(str(site / "later"))
    plugins.refresh()
    try:
        found = [(record.id, record.version) for record in plugins.records() if record.distribution == "rlplug-foo"]
    finally:
        sys.path.remove(str(site / "later"))
    assert found == [("foo", "1.0")]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[rlplug.algorithms]\nfoo\n", "cannot be parsed"),
        ("[rlplug.algorithms]\nfoo = rlplug_foo\n", "names a module"),
        ("[rlplug.algorithms]\nfoo = not a target\n", "not of the form module:name"),
        ("[rlplug.algorithms]\nfo o = rlplug_foo:X\n", "not made of letters"),
        ("[rlplug.algorithms]\nfoo = absent_top:X\n", "package 'absent_top' is not installed"),
    ],
)
def test_malformed_entry_point_is_broken(site: Path, install: Callable[..., None], text: str, reason: str) -> None:
    install("rlplug-good", "good")
    info = write_distribution(site, "rlplug-foo", {}, {"rlplug_foo/__init__.py": ""})
    (info / "entry_points.txt").write_text(text)
    plugins.refresh()
    (found,) = [record for record in plugins.records() if record.distribution == "rlplug-foo"]
    assert found.status == "broken"
    assert reason in found.reason
    assert find_record("good").status == "ok"


@pytest.mark.parametrize(
    ("group", "reason"),
    [
        ("rlplug.algorithm", r"^there is no entry point group 'rlplug.algorithm'; did you mean 'algorithms'\?$"),
        ("rlplug.commands", r"'rlplug.commands'; the groups are rlplug.algorithms, rlplug.envs, "),
    ],
)
def test_unknown_group_is_broken(install: Callable[..., None], group: str, reason: str) -> None:
    """It takes no name from a working plugin."""
    install("rlplug-foo", "good")
    points = {group: {"foo": "rlplug_bar:Foo", "good": "rlplug_bar:Good"}}
    install("rlplug-bar", entry_points=points, files={"rlplug_bar/__init__.py": "1/0"})
    assert re.search(reason, find_record("foo").reason)
    assert find_record("foo").status == "broken"
    assert find_record("good").distribution == "rlplug-foo"
    assert find_record("good").status == "ok"


def test_reads_egg_info(site: Path, install: Callable[..., None]) -> None:
    install("rlplug-foo", "foo")
    old = (site / "rlplug_foo-1.0.dist-info").rename(site / "rlplug_foo.egg-info")
    (old / "METADATA").rename(old / "PKG-INFO")
    (old / "requires.txt").write_text("numpy\nrlplug-core>=99\n\n[test]\npytest\n")
    plugins.refresh()
    assert find_record("foo").reason.startswith("it needs rlplug-core>=99")


def test_finds_distribution_in_archive(site: Path) -> None:
    points = {"rlplug.algorithms": {"foo": "rlplug_foo.foo:Algo"}}
    files = {"rlplug_foo/__init__.py": "", "rlplug_foo/foo.py": LEARNER.format(name="Algo")}
    write_distribution(site / "loose", "rlplug-foo", points, files)
    archive = shutil.make_archive(str(site / "archive"), "zip", site / "loose")
    sys.path.append(archive)
    plugins.refresh()
    try:
        assert find_record("foo").version == "1.0"
        assert plugins.algorithm("foo").__name__ == "Algo"
    finally:
        sys.path.remove(archive)


def test_scan_agrees_with_importlib_metadata() -> None:
    """For all distributions of the environment of the tests."""
    groups = [f"rlplug.{group}" for group in GROUPS]
    expected = {(group, record.name, record.value) for group in groups for record in entry_points(group=group)}
    found = {(f"rlplug.{record.group}", record.id, record.target) for record in plugins.records()}
    assert found == expected


def test_unreadable_metadata_does_not_stop_discovery(site: Path, install: Callable[..., None]) -> None:
    install("rlplug-good", "good")
    info = write_distribution(site, "rlplug-foo", {}, {})
    (info / "entry_points.txt").write_bytes(b"[rlplug.algorithms]\n\xff\xfe = x:y\n")
    (site / "half_removed-1.0.dist-info").mkdir()
    (site / "half_removed-1.0.dist-info" / "entry_points.txt").write_text("[rlplug.hooks]\nx = y\n")
    plugins.refresh()
    assert find_record("good").status == "ok"


class Unreadable(PathDistribution):
    """A distribution of the backport of importlib.metadata, which raises if a file is not UTF-8."""

    def read_text(self, filename: object) -> str:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, f"in {filename}")


class Finder:
    """A finder that finds only a distribution."""

    def find_spec(self, *names: object) -> None:
        """Find no module."""

    def find_distributions(self, context: object) -> list[Unreadable]:
        return [Unreadable(Path("nowhere"))]


def test_unreadable_distributions_do_not_stop_discovery(
    monkeypatch: pytest.MonkeyPatch, install: Callable[..., None]
) -> None:
    install("rlplug-good", "good")
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    plugins.refresh()
    assert find_record("good").status == "ok"


def test_removes_escape_codes_from_metadata(install: Callable[..., None]) -> None:
    install("rlplug-foo", "foo", summary="\x1b[31mred\x07 text\u202e")
    assert find_record("foo").summary == "[31mred text"
    assert plain("a\tb\n\x9bc", 5) == "a b c"
    assert plain("long" * 9, 5) == "long…"


def test_loads_algorithm_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(LEARNER.format(name="Mine"))
    name = plugins.absolute(f"{path}:Mine")
    assert plugins.algorithm(name) is plugins.algorithm(name)
    assert plugins.source_file(name) == path
    assert plugins.source_file("a2c") is None
    assert plugins.absolute("a2c") == "a2c"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./absent.py:X", "there is no file absent.py"),
        ("./absent.py", "write ./file.py:Name"),
        ("absent_module:X", "there is no module 'absent_module'"),
        ("rlplug_core:9", "names no algorithm"),
        ("./absent:X", "'./absent' is not a module's name"),
    ],
)
def test_missing_target_raises(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plugins.algorithm(name)


def test_names_missing_module_with_a_similar_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "absents_learner.py").write_text("import absents")
    with pytest.raises(
        MissingPackage, match=r"'absents_learner:Mine' needs the module 'absents', which is not installed"
    ):
        plugins.algorithm("absents_learner:Mine")


def test_file_is_executed_again_after_an_error(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("1/0")
    with pytest.raises(PluginError, match="ZeroDivisionError"):
        plugins.algorithm(f"{path}:Mine")
    path.write_text(LEARNER.format(name="Mine"))
    assert plugins.algorithm(f"{path}:Mine").__name__ == "Mine"


def test_discovery_imports_no_large_package() -> None:
    code = (
        "import sys; from rlplug_core import plugins; plugins.records(); plugins.env_ids();"
        "print([name for name in ('torch', 'numpy', 'gymnasium', 'mlflow', 'pluggy', 'rich') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "[]\n"
