"""Registries: `rlplug search`, `list --available` and the hint about plugins that are not installed."""

from __future__ import annotations

import gc
import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import rlplug_core
from rlplug_cli.render.plugin_page import badge, plugin_page
from rlplug_core.plugins import offers
from rlplug_core.plugins import registry as module
from rlplug_core.plugins.registry import OWN
from rlplug_core.testing import CONTRACT

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
Call = Callable[..., Any]

QMIX = {
    "group": "algorithms", "id": "qmix", "distribution": "rlplug-marl", "version": "0.3.0",
    "summary": "Monotonic mixing of values.", "paper": "arXiv:1803.11485", "contract": 2,
    "learned": ["Climb: 10 after 20,000 env steps (one seed)"],
}  # fmt: skip
CHECK = {
    "group": "algorithms", "id": "qmix", "version": "0.3.0", "core": "0.1.0", "python": "3.12.1", "contract": 2,
    "date": "2026-11-29", "command": "rlplug check qmix", "counts": {"passed": 31, "skipped": 14}, "failed": [],
}  # fmt: skip


def registry(path: Path, *plugins: object) -> str:
    path.write_text(json.dumps({"format": 1, "plugins": list(plugins)}), encoding="utf-8")
    return str(path)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Serve a folder on the loopback interface; yield its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:  # a server without a socket never waits
            server.shutdown()
            thread.join()


@pytest.fixture
def cache(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
    monkeypatch.delenv("RLPLUG_REGISTRY", raising=False)
    return place / "cache"


def test_search_finds_installed_plugins_without_a_registry(rlplug: Call, cache: Path) -> None:
    plugins = json.loads(rlplug("search", "soft", "actor", "--json").out)
    assert [plugin["id"] for plugin in plugins] == ["cql", "sac", "sac-discrete"]
    assert all(plugin["installed"] for plugin in plugins)
    result = rlplug("search", "no-such-word")
    assert (result.code, f"(the registry is {OWN})" in result.err) == (2, True)


def test_registry_of_the_core_has_all_plugins_of_the_repository() -> None:
    """To add one: 'rlplug index PLUGIN --check --registry rlplug-core/src/rlplug_core/plugins/registry.json'."""
    indices = [*ROOT.glob("rlplug-*/src/*/index/*.json"), *ROOT.glob("examples/rlplug-*/src/*/index/*.json")]
    ids = {(path.parents[1].name.replace("_", "-"), path.stem) for path in indices}
    assert {(plugin.distribution, plugin.id) for plugin in offers(str(OWN))} == ids


def test_missing_plugin_is_named_from_the_registry_of_the_core(
    rlplug: Call, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mazes = QMIX | {"distribution": "rlplug-mazes"}
    plugins = (mazes | {"group": group, "id": "maze"} for group in ("algorithms", "envs", "wrappers"))
    monkeypatch.setattr(module, "OWN", registry(cache.parent / "own.json", *plugins))
    line = "rlplug-mazes has it: python -m pip install rlplug-mazes\n"
    for words, plugin in (
        (("run", "ppo", "maze/Small-v0"), "no plugin with the namespace 'maze'"),
        (("run", "ppo", "CartPole-v1", "--wrap", "maze"), "no wrapper 'maze'"),
        (("run", "rlplug-mazes/maze", "CartPole-v1"), "no algorithm 'rlplug-mazes/maze'"),
    ):
        result = rlplug(*words)
        assert (result.code, f"rlplug: {plugin} is installed; {line}" in result.err) == (2, True), result.err


def test_missing_plugin_is_named_from_the_registry_of_the_user(
    rlplug: Call, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLPLUG_REGISTRY", registry(cache.parent / "all.json", QMIX))
    assert "install with: python -m pip install rlplug-marl" in rlplug("search", "mixing").out
    assert "qmix" in rlplug("list", "--available").out
    result = rlplug("run", "qmix", "CartPole-v1")
    assert result.code == 2
    assert "no algorithm 'qmix' is installed; rlplug-marl has it: python -m pip install rlplug-marl" in result.err


def test_page_of_plugins_says_which_are_supported(rlplug: Call, cache: Path) -> None:
    evil = "<script>alert(1)</script> [x](javascript:1) | a"
    check = CHECK | {"core": evil, "version": evil, "failed": [evil], "date": evil, "python": evil, "command": evil}
    hostile = QMIX | {"id": "evil", "summary": evil, "checks": [check]}
    place = registry(cache.parent / "r.json", QMIX, QMIX | {"id": "later", "contract": 99}, hostile)
    result = rlplug("search", "rlplug-marl", "--registry", place, "--page", "page.md", "--badges", "badges")
    assert result.code == 0, result.err
    page = Path("page.md").read_text(encoding="utf-8")
    install = "`python -m pip install rlplug-marl` 0.3.0"
    about = "Monotonic mixing of values. arXiv:1803.11485"
    assert f"| `qmix` | {install} | {about} | Climb: 10 after 20,000 env steps (one seed) | 2 | yes |\n" in page
    assert re.search(r"\| `later` \|.*\| 99 \| no \|\n", page)
    assert not set("<>[]") & set(page)
    assert page.count("|") == 7 * 5 + 3 * 3  # three plugins, one check, and two lines of each title
    badge = Path("badges/rlplug-marl.svg").read_text(encoding="utf-8")
    assert {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(badge).iter()} == {
        "svg", "title", "rect", "g", "text",
    }  # fmt: skip


def test_page_has_a_table_of_versions_and_a_badge(rlplug: Call, cache: Path) -> None:
    failing = CHECK | {"core": "0.2.0", "date": "2027-01-31", "failed": ["resume", "export"]}
    old = CHECK | {"version": "0.2.0", "date": "2026-01-31"}
    place = registry(cache.parent / "r.json", QMIX | {"checks": [failing, old, CHECK]}, QMIX | {"id": "vdn"})
    words = ("search", "rlplug-marl", "--registry", place)
    assert "failed 2027-01-31: resume, export" in rlplug(*words, "--page", "page.md", "--badges", "badges").out
    page = Path("page.md").read_text(encoding="utf-8")
    assert page.endswith(
        "| plugin | rlplug-core 0.1.0 | rlplug-core 0.2.0 |\n|---|---|---|\n"
        "| `qmix` of rlplug-marl 0.2.0 | passed 2026-01-31 |  |\n"
        "| `qmix` of rlplug-marl 0.3.0 | passed 2026-11-29 | failed 2027-01-31: resume, export |\n"
    )
    badge = Path("badges/rlplug-marl.svg")
    assert ">passes with core 0.1.0; fails with core 0.2.0</text>" in badge.read_text(encoding="utf-8")
    registry(Path(place), QMIX | {"checks": [CHECK]})
    rlplug(*words, "--badges", "badges")
    assert "fails" not in badge.read_text(encoding="utf-8")
    assert ">rlplug check 0.3.0</text>" in badge.read_text(encoding="utf-8")


def test_table_and_badges_of_the_docs_match_the_registry() -> None:
    """`nox -s compat` writes all of them."""
    plugins = offers(str(OWN))
    page = (DOCS / "plugins" / "available.md").read_text(encoding="utf-8")
    assert page.partition("## Checks")[2] == plugin_page(plugins).partition("## Checks")[2] != ""
    badges = {path.stem: path.read_text(encoding="utf-8") for path in (DOCS / "pictures" / "badges").glob("*.svg")}
    names = {plugin.distribution for plugin in plugins if plugin.checks}
    assert badges == {name: badge([plugin for plugin in plugins if plugin.distribution == name]) for name in names}


def test_search_in_500_plugins_takes_less_than_200_ms(rlplug: Call, cache: Path) -> None:
    """Processor time of this process, so other processes do not count; a new process starts in 60 ms."""
    checked = QMIX | {"checks": [CHECK]}
    many = [{**checked, "id": f"thing-{number}", "distribution": f"rlplug-thing-{number}"} for number in range(500)]
    place = registry(cache.parent / "many.json", *many)
    rlplug("search", "thing-7", "--registry", place)  # imports
    gc.collect()  # or it may collect the garbage of other tests in the search, which takes half a second
    before = time.process_time()
    result = rlplug("search", "thing-7", "--registry", place)
    assert time.process_time() - before < 0.2
    assert result.out.count(" rlplug-thing-7") == 12  # 7, 70 to 79, and the line of pip


def test_entries_have_the_returns_of_presets(rlplug: Call, cache: Path) -> None:
    (ppo,) = [plugin for plugin in json.loads(rlplug("search", "ppo", "--json").out) if plugin["id"] == "ppo"]
    assert "CartPole-v1: 500 after 100,000 env steps (worst seed of 5)" in ppo["learned"]
    assert "ALE/Pong-v5: -16.4 after 1,500,000 env steps (one seed)" in ppo["learned"]


def test_list_takes_a_registry(rlplug: Call, cache: Path) -> None:
    place = registry(cache.parent / "all.json", QMIX)
    assert "qmix" in rlplug("list", "--available", "--registry", place).out
    assert "qmix" in rlplug("list", "--registry", place).out


def test_configuration_file_can_name_a_folder_of_registries(
    rlplug: Call, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = cache.parent / "registries"
    folder.mkdir()
    registry(folder / "one.json", QMIX)
    registry(folder / "two.json", QMIX | {"id": "vdn"}, QMIX)
    config = cache.parent / "config.toml"
    config.write_text(f"[plugins]\nregistry = '{folder}'\n", encoding="utf-8")
    monkeypatch.setenv("RLPLUG_CONFIG", str(config))
    assert [plugin["id"] for plugin in json.loads(rlplug("search", "rlplug-marl", "--json").out)] == ["qmix", "vdn"]


def test_index_replaces_entries_of_the_same_distribution(rlplug: Call, cache: Path) -> None:
    old = QMIX | {"distribution": "rlplug-core"}
    before = CHECK | {"group": "controllers", "id": "plateau"}
    versions = [before | {"version": "0.0.9"}, before | {"version": rlplug_core.__version__, "core": "0.0.9"}]
    plateau = old | {"group": "controllers", "id": "plateau", "checks": versions}
    path = registry(cache.parent / "all.json", QMIX, old, plateau)
    assert rlplug("index", "rlplug-core", "--check", "--registry", path).code == 0
    by_id = {plugin["id"]: plugin for plugin in json.loads(Path(path).read_text(encoding="utf-8"))["plugins"]}
    assert {"qmix", "early-stopping", "plateau"} <= set(by_id)
    assert (by_id["qmix"]["distribution"], by_id["plateau"]["contract"]) == ("rlplug-marl", CONTRACT)
    assert [check["version"] for check in by_id["plateau"]["checks"]] == ["0.0.9"]  # the sources may have changed
    result = rlplug("search", "--registry", path, "--json")
    assert {plugin["id"] for plugin in json.loads(result.out) if plugin["distribution"] == "rlplug-marl"} == {"qmix"}


def test_registry_at_an_address_is_cached(rlplug: Call, cache: Path) -> None:
    path = Path(registry(cache.parent / "all.json", QMIX))
    good = hashlib.sha256(path.read_bytes()).hexdigest()
    with serve(cache.parent) as address:
        place = f"{address}/all.json#sha256={good}"
        assert "qmix" in rlplug("search", "mixing", "--registry", place).out
        registry(path, QMIX | {"id": "vdn"})
        assert "qmix" in rlplug("search", "mixing", "--registry", place).out
        refreshed = rlplug("search", "mixing", "--registry", place, "--refresh")
        assert (refreshed.code, "has other contents than #sha256=" in refreshed.err) == (2, True)
    assert "qmix" in rlplug("search", "mixing", "--registry", place).out
    gone = rlplug("search", "mixing", "--registry", f"{address}/other.json")
    assert (gone.code, "cannot be reached" in gone.err) == (2, True)
    bare = rlplug("search", "--registry", "http://example.invalid/all.json")
    assert (bare.code, "is read over https only" in bare.err) == (2, True)


HOSTILE: dict[str, object] = {
    "option of pip as a name": QMIX | {"distribution": "--index-url=http://evil"},
    "path as a name": QMIX | {"distribution": "../../evil"},
    "command as a name": QMIX | {"distribution": "evil; touch hacked"},
    "name with a line break": QMIX | {"distribution": "evil\nx"},
    "id with control characters": QMIX | {"id": "qmix\x1b[2J"},
    "unknown group": QMIX | {"group": "commands"},
    "number as a name": QMIX | {"id": 7},
    "list as a summary": QMIX | {"summary": ["a"]},
    "text as the results of checks": QMIX | {"checks": "passed"},
    "check without its core": QMIX | {"checks": [{"version": "1", "date": "2026-11-29"}]},
    "no names": {},
    "text": "qmix",
    "none": None,
}


def test_hostile_entries_are_left_out_or_cleaned(rlplug: Call, cache: Path) -> None:
    noisy = QMIX | {"id": "noisy", "summary": "mixing \x1b]0;x\x07[red]loud[/red]\n" + "x" * 10_000}
    noisy["checks"] = [CHECK | {"date": "\x1b[2J", "core": "\x1b]0;x\x07"}]
    place = registry(cache.parent / "all.json", *HOSTILE.values(), noisy)
    result = rlplug("search", "rlplug-marl", "--registry", place, "--json")
    (plugin,) = json.loads(result.out)
    (check,) = plugin["checks"]
    assert (plugin["id"], check["date"], "\x1b" in check["core"]) == ("noisy", "undated", False)
    shown = rlplug("search", "noisy", "--registry", place).out
    assert "\x1b" not in shown
    assert "[red]loud[/red]" in shown
    assert not (cache.parent / "hacked").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, '{"format": 9, "plugins": []}', '{"format": 1}'])
def test_invalid_registry_prints_one_sentence(rlplug: Call, cache: Path, text: str) -> None:
    path = cache.parent / "bad.json"
    path.write_text(text, encoding="utf-8")
    result = rlplug("search", "--registry", str(path))
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "registry" in result.err
