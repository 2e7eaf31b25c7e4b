"""The museum of bad plugins: each is a distribution with one defect, and the message that a user gets about it.

`write` builds wheels of them. An algorithm writes a file when it is imported, so that a test can check that nothing
imported it.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlplug_core.testing.distributions import write_distribution

#: Code at the top of every module that writes a file when it is imported.
MARK = "from pathlib import Path\nPath(__file__).with_suffix('.imported').touch()\n"
#: An algorithm without a defect.
VALID = f"{MARK}from rlplug_algos.policy_gradient.a2c import A2C, A2CConfig\nclass Algo(A2C):\n    '''Borrowed.'''\n"
HOOK = "from rlplug_core.plugins.hook_specs import hookimpl\n@hookimpl\n"


@dataclass(frozen=True)
class Exhibit:
    """One bad plugin.

    `id` names its entry point in `group`, `museum-<id>` its distribution and `museum_<id>` its package. `code` is its
    module, `index` its index file. `shown` is the message of `rlplug doctor`, which does not import it, or "" if it has
    none; `code_used` and `used` are the exit code and the message on stderr of a command that names it.
    """

    id: str
    defect: str
    code: str = VALID
    shown: str = "it has no index"
    used: str = ""
    code_used: int = 0
    index: Mapping[str, Any] | None = None
    group: str = "algorithms"
    distribution: str = ""
    requires: Sequence[str] = ("rlplug-core>=0.1,<1",)
    summary: str = "An exhibit"
    more: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The distribution's name."""
        return self.distribution or f"museum-{self.id}"

    @property
    def package(self) -> str:
        return self.name.replace("-", "_")

    def files(self) -> dict[str, str]:
        """The text of each file in the wheel by its path."""
        files = {f"{self.package}/__init__.py": "", f"{self.package}/code.py": self.code}
        if self.index is not None:
            files[f"{self.package}/index/{self.id}.json"] = json.dumps(self.index)
        return {**files, **{f"{self.package}/{path}": text for path, text in self.more.items()}}


def index(id: str, package: str, code: str = VALID, **other: Any) -> dict[str, Any]:
    """An index of `code` as the module of `package`."""
    modules = {f"{package}.code": hashlib.sha256(code.encode()).hexdigest()}
    return {"format": 2, "group": "algorithms", "id": id, "summary": f"{id}, indexed", "modules": modules, **other}


def option(name: str, **other: Any) -> dict[str, Any]:
    """An option of an index."""
    bounds = {
        "minimum": None,
        "maximum": None,
        "open_minimum": False,
        "optional": False,
        "search": None,
        "scheduled": False,
    }
    return {"name": name, "type": "float", "default": 1.0, "help": "a number", "choices": [], **bounds, **other}


def own_option(default: str, comment: str) -> str:
    """An algorithm with the option `temperature`."""
    return (
        f"{MARK}from dataclasses import dataclass\nfrom rlplug_algos.policy_gradient.a2c import A2C, A2CConfig\n"
        f"@dataclass(frozen=True)\nclass Options(A2CConfig):\n    temperature: {default}  # {comment}\n"
        "class Algo(A2C):\n    Config = Options\n"
    )


EXHIBITS = (
    Exhibit("syntax", "a syntax error", "def broken(:\n", used="cannot be loaded: SyntaxError", code_used=3),
    Exhibit("target", "its target is missing", f"{MARK}class Algorithm: ...\n",
            used="museum_target.code has no 'Algo'; did you mean 'Algorithm'", code_used=3),
    Exhibit("needs", "a dependency is missing", f"{MARK}import package_that_is_not_here\n",
            requires=("rlplug-core>=0.1,<1", "package-that-is-not-here>=2"), code_used=3,
            used="needs the package 'package_that_is_not_here', which is not installed: "
                 "python -m pip install 'package-that-is-not-here>=2'"),
    Exhibit("exits", "it exits while it is imported", f"{MARK}raise SystemExit(5)\n",
            used="cannot be loaded: SystemExit: 5", code_used=3),
    Exhibit("prints", "it prints while it is imported", f"{VALID}print('welcome to the museum')\n"),
    Exhibit("slow", "its import takes ten seconds, and it has no index",
            f"{MARK}import threading\nthreading.Event().wait(10)\n{VALID}"),
    Exhibit("claims", "its index claims another algorithm's id", index=index("a2c", "museum_claims"),
            shown="its index is that of algorithms 'a2c'"),
    Exhibit("stale", "its index is of an older version", index=index("stale", "museum_stale", "an older version"),
            shown="its index was made from another version of 'museum_stale.code'"),
    Exhibit("drift", "its base class has changed since its index was made",
            index={**index("drift", "museum_drift"), "modules": {"rlplug_algos.policy_gradient.a2c": "0" * 64}},
            shown="its index was made from another version of 'rlplug_algos.policy_gradient.a2c'"),
    Exhibit("orphan", "its base class was removed", f"{MARK}from rlplug_core.algorithm import Algorythm\n",
            used="cannot be loaded: ImportError: cannot import name 'Algorythm'", code_used=3),
    Exhibit("shapeless", "it lacks the methods of an algorithm", f"{MARK}class Algo:\n    runners = ()\n",
            used="is not an algorithm: it has no 'Config', 'agent', 'buffer', 'update'", code_used=3),
    Exhibit("future", "it needs another rlplug-core", requires=("rlplug-core>=99",),
            shown="is incompatible: it needs rlplug-core>=99", used="is incompatible: it needs rlplug-core>=99",
            code_used=3),
    Exhibit("ppo", "its id is a first-party one", distribution="museum-clash",
            shown="the id 'ppo' belongs to rlplug-algos; use 'museum-clash/ppo'"),
    Exhibit("twin", "its id is another plugin's", own_option("float = 0.5", "of the first twin"),
            distribution="museum-twin-one", used="write 'museum-twin-one/twin' or 'museum-twin-two/twin'", code_used=2),
    Exhibit("twin", "its id is another plugin's", own_option("int = 7", "of the second twin"),
            distribution="museum-twin-two", used="write 'museum-twin-one/twin' or 'museum-twin-two/twin'", code_used=2),
    Exhibit("escape", "escape codes in its metadata", summary="red \x1b[31mand\x07 loud", shown="",
            index=index("escape", "museum_escape", paper="\x1b[31mred", options=[option("loud", help="\x1b[2Jgone")])),
    Exhibit("schema", "its index has an option of an unknown type",
            index=index("schema", "museum_schema", options=[option("width", type="matrix")]),
            shown="its index cannot be read (option 'width' has the unknown type 'matrix')"),
    Exhibit("untyped", "it has an option that the command line cannot parse", own_option("dict = None", "anything"),
            used="option 'temperature' has type <class 'dict'>; use int, float", code_used=3),
    Exhibit("presets", "its presets cannot be read", more={"presets/presets.toml": "[default\n"},
            used="presets.toml cannot be read: ", code_used=3),
    Exhibit("misspelt", "a misspelt hook", f"{HOOK}def rlplug_run_strat(run): ...\n", group="hooks",
            shown="unknown hook 'rlplug_run_strat'"),
    Exhibit("raises", "a hook that raises", f"{HOOK}def rlplug_run_log(): raise ValueError('not today')\n",
            group="hooks", shown=""),
    Exhibit("unpacked", "its index is missing from the wheel"),
)  # fmt: skip

ALGORITHMS = tuple(exhibit for exhibit in EXHIBITS if exhibit.group == "algorithms")


def write(folder: Path) -> list[Path]:
    """Build the wheels of the museum in `folder`."""
    return [_wheel(exhibit, folder) for exhibit in EXHIBITS]


def _wheel(exhibit: Exhibit, folder: Path) -> Path:
    target = f"{exhibit.package}.code" + (":Algo" if exhibit.group == "algorithms" else "")
    points = {f"rlplug.{exhibit.group}": {exhibit.id: target}}
    path = folder / f"{exhibit.package}-1.0-py3-none-any.whl"
    with tempfile.TemporaryDirectory() as temporary, zipfile.ZipFile(path, "w") as wheel:
        root = Path(temporary)
        info = write_distribution(
            root, exhibit.name, points, exhibit.files(), requires=exhibit.requires, summary=exhibit.summary
        )
        (info / "WHEEL").write_text("Wheel-Version: 1.0\nGenerator: museum\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        (info / "RECORD").write_text("".join(_record_lines(root, info / "RECORD")))
        for file in sorted(root.rglob("*")):
            wheel.write(file, file.relative_to(root))
    return path


def _record_lines(root: Path, record: Path) -> Iterator[str]:
    """The lines of RECORD: each file with its hash and size, and RECORD itself without them."""
    for file in sorted(path for path in root.rglob("*") if path.is_file()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest()).rstrip(b"=").decode()
        line = io.StringIO()
        csv.writer(line).writerow((file.relative_to(root), f"sha256={digest}", file.stat().st_size))
        yield line.getvalue()
    yield f"{record.relative_to(root)},,\n"
