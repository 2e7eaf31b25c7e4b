"""Environment ids: the namespace names the provider, and only that plugin is imported."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlplug_core import plugins
from rlplug_core.errors import MissingPackage, PluginError, UnknownEnv, UsageError
from rlplug_core.plugins import envs
from rlplug_core.plugins.envs import make_shown, names_code
from rlplug_core.plugins.names import env_parts
from rlplug_core.plugins.presets import preset
from rlplug_core.testing.distributions import write_distribution

PROVIDER = """
from rlplug_core.errors import UnknownEnv
class Env:
    def __init__(self, id, rows): self.spec = (id, rows)
    def reset(self, seed): ...
    def step(self, action): ...
    def state_dict(self): ...
class Provider:
    def ids(self): return ["Grid-v0", "Grid/Big-v0"]
    def make(self, id, rows):
        if "Grid" not in id: raise UnknownEnv(f"no environment '{id}'")
        return Env(id, rows)
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a path with one provider; the default provider is disabled."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "rlplug-envs")
    points = {"rlplug.envs": {"grid": "rlplug_grid:Provider"}}
    write_distribution(tmp_path, "rlplug-grid", points, {"rlplug_grid/__init__.py": PROVIDER})
    write_distribution(tmp_path, "rlplug-envs", {"rlplug.envs": {"gymnasium": "rlplug_envs.x:X"}}, {})
    plugins.refresh()
    imported = set(sys.modules)
    yield tmp_path
    monkeypatch.undo()
    for name in {"rlplug_grid", "rlplug_envs"} - imported:
        sys.modules.pop(name, None)
    plugins.refresh()


def spec(env_id: str, num_envs: int) -> object:
    return plugins.make_env(env_id, num_envs).spec


def test_namespace_names_the_provider(site: Path) -> None:
    assert spec("Grid/Big-v0", 3) == ("Grid/Big-v0", 3)


def test_provider_name_before_a_colon_is_not_a_module(site: Path) -> None:
    assert spec("grid:Grid-v0", 3) == ("grid:Grid-v0", 3)
    assert spec("Grid:far/Away", 1) == ("Grid:far/Away", 1)
    assert not names_code("grid:Grid")
    assert names_code("grids:Grid")


def test_provider_makes_and_shows_its_environments(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their ids have no namespace, and the default provider does not know them."""
    monkeypatch.delenv("RLPLUG_DISABLED_PLUGINS")
    default = PROVIDER.replace('"Grid" not in id', "True")
    method = "    def make_shown(self, id, mode): return Env(f'{id} as {mode}', 1)\n"
    for package, code in (("rlplug_envs", default), ("rlplug_grid", PROVIDER)):
        (site / package).mkdir(exist_ok=True)
        (site / package / "__init__.py").write_text(code + method)
    (site / "rlplug_envs" / "__init__.py").write_text(
        default + "    def make_shown(self, id, mode): raise UnknownEnv(id)\n"
    )
    (points,) = site.glob("rlplug_envs-*/entry_points.txt")
    points.write_text(points.read_text().replace("rlplug_envs.x:X", "rlplug_envs:Provider"))
    plugins.refresh()
    (record,) = (each for each in plugins.records() if each.distribution == "rlplug-grid")
    monkeypatch.setattr(envs.index, "env_ids", lambda each: ("Grid-v*",) if each == record else ())
    monkeypatch.delitem(sys.modules, "rlplug_envs", raising=False)
    assert spec("Grid-v0", 2) == ("Grid-v0", 2)
    assert make_shown("Grid-v0", "human", {}).spec == ("Grid-v0 as human", 1)  # type: ignore[comparison-overlap]


def test_full_name_selects_one_of_two_providers(site: Path) -> None:
    points = {"rlplug.envs": {"grid": "rlplug_other:Provider"}}
    code = PROVIDER.replace("(id, rows)", '("other", rows)', 1)
    write_distribution(site, "rlplug-other", points, {"rlplug_other/__init__.py": code})
    plugins.refresh()
    with pytest.raises(
        UsageError, match="'grid' is in several plugins; write 'rlplug-grid/grid' or 'rlplug-other/grid'"
    ):
        spec("Grid/Big-v0", 3)
    full = "rlplug-grid/Grid/Big-v0"
    assert plugins.make_env(full, 3).spec == ("Grid/Big-v0", 3)
    assert spec("Rlplug_Grid/grid/Grid-v0", 2) == ("grid/Grid-v0", 2)


def test_presets_accept_full_names(site: Path) -> None:
    assert env_parts("rlplug-grid/Grid/Big-v0") == ("rlplug-grid/grid", "Grid/Big-v0")
    assert env_parts("rlplug-envs/gymnasium/ALE/Pong-v5") == ("rlplug-envs/gymnasium", "ALE/Pong-v5")
    assert env_parts("ALE/Pong-v5") == ("", "ALE/Pong-v5")
    assert env_parts("rlplug-grid/other/Big-v0") == ("", "rlplug-grid/other/Big-v0")
    (site / "rlplug_grid" / "presets").mkdir()
    (site / "rlplug_grid" / "presets" / "grid.toml").write_text('["Grid/Big-v0"]\nseed = 7\n')
    path = site / "mine.py"
    path.write_text("class Mine: ...\n")
    assert preset(f"{path}:Mine", "rlplug-grid/Grid/Big-v0") == preset(f"{path}:Mine", "Grid/Big-v0") == {"seed": 7}


def test_unknown_id_of_known_namespace_raises(site: Path) -> None:
    with pytest.raises(UnknownEnv, match="no environment"):
        plugins.make_env("grid/Other-v0", 1)


def test_disabled_default_provider_raises(site: Path) -> None:
    with pytest.raises(PluginError, match=r"provider 'gymnasium' of rlplug-envs .* is disabled"):
        plugins.make_env("CartPole-v1", 1)


def test_callable_in_a_file_makes_environments(site: Path) -> None:
    path = site / "mine.py"
    path.write_text(PROVIDER + "\ndef make(rows): return Env('mine', rows)\ndef wrong(rows): return 3\n")
    assert spec(f"{path}:make", 2) == ("mine", 2)
    with pytest.raises(
        PluginError, match=r"which is not an environment: return a gymnasium.Env .* has 'spec', 'reset'"
    ):
        plugins.make_env(f"{path}:wrong", 2)


def test_provider_that_cannot_be_built_raises(site: Path) -> None:
    (site / "rlplug_grid" / "__init__.py").write_text(
        "class Provider:\n def __init__(self): raise OSError('no display')\n ids = make = print\n"
    )
    with pytest.raises(PluginError, match=r"'grid' of rlplug-grid 1.0 cannot be built: OSError: no display"):
        plugins.make_env("Grid/Big-v0", 1)


def test_missing_package_of_provider_raises(site: Path) -> None:
    """A requirement with a longer name is another package."""
    (site / "rlplug_grid" / "__init__.py").write_text("import absent_simulator")
    (metadata,) = site.glob("rlplug_grid-*/METADATA")
    original = metadata.read_text()
    message = "needs the package 'absent_simulator', which is not installed"
    for line, remedy in (
        ("absent-simulator-extras>=1", ", and rlplug-grid does not declare it; ask its author"),
        ("Absent.Simulator[all]>=1", r": python -m pip install 'Absent.Simulator\[all\]>=1'"),
    ):
        metadata.write_text(original.rstrip("\n") + f"\nRequires-Dist: {line}\n")
        with pytest.raises(MissingPackage, match=message + remedy) as caught:
            plugins.make_env("grid/x", 1)
        assert caught.value.exit_code == 3
