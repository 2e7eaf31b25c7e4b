"""Names and pages use the words of the field in American spelling."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from rlplug_core.config.run_options import RunOptions
from rlplug_core.config.schema import schema

ROOT = Path(__file__).parents[2]
#: Old names of options.
OLD = (
    "rows|total.steps|clip|lr|batch|epochs|updates|policy.every|target.every|epsilon.until|epsilon.bends|"
    "epsilon.end|verdict|verdict.episodes|lam|entropy|value|kl.stop|standardise|anneal|gradient.clip|optimiser|"
    "stop.after|acting|keep|decay|sigma|carry"
)
#: Stems in British spelling.
BRITISH = (
    "behaviour|colour|favour|honour|neighbour|artefact|judgement|catalogue|programme|defence|analyse|cancelled|"
    "labelled|modelled|travelled|normalis|standardis|optimis(?!m)|initialis|summaris|recognis|organis|minimis|"
    "maximis|vectoris|regularis|discretis|quantis|synchronis|randomis|penalis|generalis|prioritis|serialis|parallelis"
)
#: Files about old versions and other libraries.
EXEMPT = {"CHANGELOG.md", "RESULTS.md", "words.md", "synonyms.csv", "test_words.py", "test_synonyms.py"}


def pages() -> Iterator[tuple[str, str]]:
    """Yield the name and content of every text file."""
    folders = ["rlplug-core", "rlplug-algos", "rlplug-envs", "rlplug-cli", "docs", "examples", "tests", "bench"]
    files = [path for folder in folders for path in (ROOT / folder).rglob("*")] + [*ROOT.glob("*.*")]
    for path in files:
        if path.suffix in (".md", ".py", ".toml", ".template", ".ipynb", ".svg") and path.name not in EXEMPT:
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def test_options_have_no_old_names() -> None:
    names = {option.name for option in schema(RunOptions)}
    for path in ROOT.glob("rlplug-*/src/*/index/*.json"):  # of packages that need not be installed here
        names |= {option["name"] for option in json.loads(path.read_text(encoding="utf-8"))["options"]}
    assert len(names) > 100
    assert not [name for name in names if re.fullmatch(OLD, name)]


def test_pages_show_no_old_options() -> None:
    shown = re.compile(rf"(?<![\w-])--(?:{OLD})(?![\w-])")
    wrong = [f"{name}: {found}" for name, text in pages() for found in shown.findall(text)]
    assert not wrong, wrong


def test_spelling_is_american() -> None:
    spelled = re.compile(rf"(?:\b|_)(?:{BRITISH})\w*", re.IGNORECASE)
    wrong = [f"{name}: {found}" for name, text in pages() for found in spelled.findall(text)]
    assert not wrong, wrong
