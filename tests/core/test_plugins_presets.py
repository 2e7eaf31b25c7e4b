"""Presets: the most specific table wins per option; what the user gives wins over all, and each origin is known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rlplug_core import plugins, presets
from rlplug_core.errors import PluginError
from rlplug_core.testing.distributions import write_distribution

TABLES = """
[default]
lr = 1.0
clip = 1
[default.net]
hidden = [64]
["Cart*"]
lr = 2.0
rows = 4
["CartPole-v*"]
rows = 8
["CartPole-v1"]
lr = 3.0
"""


@pytest.fixture
def preset_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    points = {"rlplug.algorithms": {"foo": "rlplug_foo.foo:Foo"}}
    files = {"rlplug_foo/__init__.py": "1/0", "rlplug_foo/presets/foo.toml": TABLES}
    write_distribution(tmp_path, "rlplug-foo", points, files)
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins.refresh()
    yield tmp_path / "rlplug_foo/presets/foo.toml"
    monkeypatch.undo()
    plugins.refresh()


@pytest.mark.parametrize(
    ("env", "values"),
    [
        ("Acrobot-v1", {"lr": 1.0, "clip": 1, "net.hidden": [64]}),
        ("Cart", {"lr": 2.0, "clip": 1, "rows": 4, "net.hidden": [64]}),
        ("CartPole-v0", {"lr": 2.0, "clip": 1, "rows": 8, "net.hidden": [64]}),
        ("CartPole-v1", {"lr": 3.0, "clip": 1, "rows": 8, "net.hidden": [64]}),
    ],
)
def test_the_most_specific_table_wins_per_option(preset_file: Path, env: str, values: dict[str, object]) -> None:
    assert presets.preset("foo", env) == presets.preset("rlplug-foo/foo", env) == values


def test_a_class_has_the_presets_of_its_entry_point(preset_file: Path) -> None:
    cls = type("Foo", (), {"__module__": "rlplug_foo.foo"})
    assert presets.preset(cls, "Cart")["rows"] == 4
    assert presets.preset(type("Bar", (), {}), "Cart") == {}


def test_no_file_is_no_preset(preset_file: Path) -> None:
    preset_file.unlink()
    assert presets.preset("foo", "Cart") == presets.preset("./x.py:Foo", "Cart") == {}


@pytest.mark.parametrize("text", ["[default", "lr = 1", "default = 3"])
def test_an_unreadable_preset_file_names_itself(preset_file: Path, text: str) -> None:
    preset_file.write_text(text)
    with pytest.raises(PluginError, match=r"foo\.toml"):
        presets.preset("foo", "Cart")


def test_given_options_win_and_origins_are_known(preset_file: Path) -> None:
    given, origins = presets.merge(
        ("option", {"lr": 9.0}), ("set", {"lr": 8.0, "clip": 7}), ("config", {"clip": 6, "net": {"hidden": [1]}})
    )
    values, origins = presets.resolve("foo", "CartPole-v1", given, origins)
    assert values == {"lr": 9.0, "clip": 7, "net.hidden": [1], "rows": 8}
    assert origins == {"lr": "option", "clip": "set", "net.hidden": "config", "rows": "preset"}
    assert presets.resolve("foo", "Cart", {"lr": 5.0})[1]["lr"] == "option"
