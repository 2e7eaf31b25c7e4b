"""Presets: the most specific table wins for each option, given options win over all, and origins are recorded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rlplug_core import plugins
from rlplug_core.config.options import log
from rlplug_core.config.schema import Option
from rlplug_core.errors import PluginError
from rlplug_core.plugins import presets
from rlplug_core.plugins.request import RunRequest
from rlplug_core.testing.distributions import write_distribution

TABLES = """
[default]
learning_rate = 1.0
max_grad_norm = 1
[default.net]
hidden = [64]
["Cart*"]
learning_rate = 2.0
num_envs = 4
["CartPole-v*"]
num_envs = 8
["CartPole-v1"]
learning_rate = 3.0
"""


@pytest.fixture
def preset_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    points = {"rlplug.algorithms": dict.fromkeys(("foo", "bar", "baz"), "rlplug_foo.foo:Foo")}
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
        ("Acrobot-v1", {"learning_rate": 1.0, "max_grad_norm": 1, "net.hidden": [64]}),
        ("Cart", {"learning_rate": 2.0, "max_grad_norm": 1, "num_envs": 4, "net.hidden": [64]}),
        ("CartPole-v0", {"learning_rate": 2.0, "max_grad_norm": 1, "num_envs": 8, "net.hidden": [64]}),
        ("CartPole-v1", {"learning_rate": 3.0, "max_grad_norm": 1, "num_envs": 8, "net.hidden": [64]}),
    ],
)
def test_most_specific_table_wins_for_each_option(preset_file: Path, env: str, values: dict[str, object]) -> None:
    assert presets.preset("foo", env) == presets.preset("rlplug-foo/foo", env) == values


@pytest.mark.parametrize(
    ("env", "kind", "values"),
    [
        ("Acrobot-v1", "continuous", {"learning_rate": 5.0, "max_grad_norm": 1, "net.hidden": [8], "net.bias": 1}),
        ("Acrobot-v1", "pixels", {"learning_rate": 1.0, "max_grad_norm": 1, "net.hidden": [64], "net.bias": 1}),
        ("Cart", "continuous", {"learning_rate": 2.0, "max_grad_norm": 1, "num_envs": 4, "net.hidden": [64]}),
    ],
)
def test_kind_applies_to_environments_without_a_table(
    preset_file: Path, env: str, kind: str, values: dict[str, object]
) -> None:
    extra = "[kind.continuous]\nlearning_rate = 5.0\nnet.hidden = [8]\n"
    preset_file.write_text(f"{TABLES}{extra}".replace("hidden = [64]", "hidden = [64]\nbias = 1"))
    assert presets.preset("foo", env, kind) == {"net.bias": 1, **values}


def test_unknown_kind_raises(preset_file: Path) -> None:
    preset_file.write_text("[kind.pixel]\n")
    with pytest.raises(PluginError, match=r"'kind.pixel' is not a table of a kind; did you mean 'pixels'\?"):
        presets.preset("foo", "Cart")


def test_missing_file_has_no_presets(preset_file: Path) -> None:
    preset_file.unlink()
    assert presets.preset("foo", "Cart") == presets.preset("./x.py:Foo", "Cart") == {}


@pytest.mark.parametrize("text", ["[default", "learning_rate = 1", "default = 3", "extends = 1", "summary = ['x']"])
def test_unreadable_file_is_named(preset_file: Path, text: str) -> None:
    preset_file.write_text(text)
    with pytest.raises(PluginError, match=r"foo\.toml"):
        presets.preset("foo", "Cart")


def test_given_options_win_and_have_origins(preset_file: Path) -> None:
    values, origins = presets.merge(
        ("option", {"learning_rate": 9.0}),
        ("set", {"learning_rate": 8.0, "max_grad_norm": 7}),
        ("config", {"max_grad_norm": 6, "net": {"hidden": [1]}}),
    )
    request = RunRequest.make("foo", "CartPole-v1", values, origins).with_presets()
    assert request.values == {"learning_rate": 9.0, "max_grad_norm": 7, "net.hidden": [1], "num_envs": 8}
    origins = dict(request.origins)
    assert origins == {"learning_rate": "option", "max_grad_norm": "set", "net.hidden": "config", "num_envs": "preset"}
    request = RunRequest.make("foo", "Cart", {"learning_rate": 5.0}).with_presets()
    assert request.origins["learning_rate"] == "option"


def extend(preset_file: Path, name: str, text: str) -> None:
    preset_file.with_name(f"{name}.toml").write_text(text)


def test_extending_preset_wins_over_its_base(preset_file: Path) -> None:
    """Even its default wins over an exact id of the base: the values of a variant hold everywhere."""
    extend(
        preset_file,
        "bar",
        'extends = "foo"\nsummary = "Better"\n[default]\nmax_grad_norm = 2\nlearning_rate = 5.0\n'
        '["CartPole-v1"]\nlearning_rate = 6.0',
    )
    extend(preset_file, "baz", 'extends = "rlplug-foo/bar"\n[default.net]\nhidden = [8]')
    assert presets.preset("bar", "CartPole-v1") == {
        "learning_rate": 6.0,
        "max_grad_norm": 2,
        "num_envs": 8,
        "net.hidden": [64],
    }
    assert presets.preset("baz", "Cart") == {"learning_rate": 5.0, "max_grad_norm": 2, "num_envs": 4, "net.hidden": [8]}
    assert presets.preset("foo", "CartPole-v1")["learning_rate"] == 3.0


def test_extends_algorithm_without_presets(preset_file: Path) -> None:
    extend(preset_file, "bar", 'extends = "baz"\n[default]\nlearning_rate = 7.0')
    assert presets.preset("bar", "Cart") == {"learning_rate": 7.0}


@pytest.mark.parametrize(
    ("base", "message"),
    [
        ("absent", r"bar\.toml extends 'absent': no algorithm 'absent' is installed"),
        ("bar", r"bar\.toml extends 'bar' in a cycle: 'rlplug-foo/bar' extends 'rlplug-foo/bar'; remove one"),
        (
            "baz",
            r"baz\.toml extends 'bar' in a cycle: 'rlplug-foo/bar' extends 'rlplug-foo/baz' extends 'rlplug-foo/bar'",
        ),
    ],
)
def test_invalid_base_raises(preset_file: Path, base: str, message: str) -> None:
    extend(preset_file, "bar", f'extends = "{base}"')
    extend(preset_file, "baz", 'extends = "bar"')
    with pytest.raises(PluginError, match=message):
        presets.preset("bar", "Cart")


def test_usual_defaults_come_from_the_default_table(preset_file: Path) -> None:
    """`--help`, `info` and tuning show them; ranges, types and help do not change."""
    extend(preset_file, "bar", 'extends = "foo"\n[default]\nmax_grad_norm = 2')
    options = (
        Option("learning_rate", "float", 0.1, "step size", search=log(1e-4, 1.0)),
        Option("seed", "int", 1, "seed"),
    )
    lr, seed = presets.usual("bar", options)
    assert lr == Option("learning_rate", "float", 1.0, "step size", search=log(1e-4, 1.0))
    assert seed == options[1]
    assert presets.usual("./x.py:Foo", options) == options


ENV_PRESETS = """
["Foggy-v*"]
learning_rate = 7.0
["CartPole-v1"]
num_envs = 9
"""


def test_environment_package_has_presets_for_other_algorithms(
    preset_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For its own environments; a table for all environments is ignored with a warning."""
    files = {"rlplug_fog/__init__.py": "1/0", "rlplug_fog/presets/foo.toml": ENV_PRESETS}
    write_distribution(tmp_path, "rlplug-fog", {"rlplug.envs": {"fog": "rlplug_fog.fog:Fog"}}, files)
    plugins.refresh()
    assert presets.preset("foo", "Foggy-v1")["learning_rate"] == 7.0
    assert presets.is_known("foo", "Foggy-v1")
    assert not presets.is_known("bar", "Foggy-v1")
    assert presets.preset("foo", "CartPole-v1")["num_envs"] == 9
    assert presets.preset("foo", "Acrobot-v1")["learning_rate"] == 1.0
    (tmp_path / "rlplug_fog/presets/foo.toml").write_text("[default]\nlearning_rate = 5.0\n", encoding="utf-8")
    assert presets.preset("foo", "Foggy-v1")["learning_rate"] == 1.0
    assert "'default' applies to all environments, and only rlplug-foo may set these for foo" in capsys.readouterr().err
