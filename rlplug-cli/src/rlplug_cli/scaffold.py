"""Makes the files of a new plugin: a complete distribution with a small working implementation."""

from __future__ import annotations

import ast
import builtins
import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

from rlplug_core import __version__, plugins
from rlplug_core.errors import UsageError
from rlplug_core.plugins import CONTRACT, FIRST_PARTY, KNOWN, NOUNS, Group

TEMPLATES = Path(__file__).parent / "templates"
SUFFIX = ".template"
#: The longest name: with it the lines of all templates stay within their limit.
LONGEST = 24

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@dataclass(frozen=True)
class Kind:
    """The differences between kinds of plugins.

    Attributes:
        target: the target of the entry point inside the package.
        requirements: its dependencies besides rlplug-core.
        run: a command that uses it.
        about: the sentence after that command in the README.
        indexed: whether its author writes an index.
        forms: the choices of `--kind`; the first is the default.
        form_requirements: further dependencies of a form.
    """

    group: Group
    noun: str
    target: str
    requirements: tuple[str, ...]
    run: str
    about: str
    indexed: bool
    forms: tuple[str, ...] = ()
    form_requirements: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


KINDS = {
    "algorithm": Kind(
        group="algorithms",
        noun="an algorithm",
        target="algorithm:$cls",
        requirements=("torch>=2.10",),
        run="rlplug run $id CartPole-v1",
        about="`rlplug info $id` shows its options, `rlplug check $id` checks it against rlplug's contract.",
        indexed=True,
        forms=("rollout", "replay"),
    ),
    "env": Kind(
        group="envs",
        noun="an environment",
        target="provider:Provider",
        requirements=("rlplug-envs$bounds", "gymnasium>=1.1,<2", "numpy>=1.26"),
        run="rlplug run a2c $env",
        about="This package provides all ids that start with `$id/`; `rlplug run` imports it only if you name one.",
        indexed=True,
        forms=("single", "tensor"),
        form_requirements={"tensor": ("torch>=2.10",)},
    ),
    "wrapper": Kind(
        group="wrappers",
        noun="a wrapper",
        target="wrapper:$cls",
        requirements=("numpy>=1.26",),
        run="rlplug run a2c CartPole-v1 --wrap $id",
        about="`rlplug info $id` shows its options, typed after its name: `--wrap $id:cost=0.1`.",
        indexed=True,
    ),
    "controller": Kind(
        group="controllers",
        noun="a controller",
        target="controller:$cls",
        requirements=(),
        run="rlplug run a2c CartPole-v1 --controller $id",
        about="`rlplug info $id` shows its options, `rlplug check controller $id` checks it against rlplug's contract.",
        indexed=True,
    ),
    "memory": Kind(
        group="memories",
        noun="a memory",
        target="memory:$cls",
        requirements=("numpy>=1.26", "torch>=2.10"),
        run="rlplug run ppo CartPole-v1 --memory $id",
        about="`rlplug info $id` shows its options, `rlplug check memory $id` checks it against rlplug's contract.",
        indexed=True,
    ),
    "network": Kind(
        group="networks",
        noun="a network",
        target="network:make",
        requirements=("gymnasium>=1.1,<2", "numpy>=1.26", "torch>=2.10"),
        run="rlplug run ppo CartPole-v1 --net.factory $id",
        about="`rlplug check network $id` checks it against rlplug's contract.",
        indexed=True,
    ),
    "population": Kind(
        group="populations",
        noun="a population rule",
        target="rule:$cls",
        requirements=("numpy>=1.26",),
        run="rlplug evolve a2c CartPole-v1 --learning-rate 1e-4..1e-2:log --rule $id",
        about="`rlplug info $id` shows its options, `rlplug check population $id` checks it against rlplug's contract.",
        indexed=True,
    ),
    "hooks": Kind(
        group="hooks",
        noun="hooks",
        target="hooks",
        requirements=(),
        run="rlplug run a2c CartPole-v1",
        about="Every run then writes `$id.log` into its directory. `-P no:$id` switches it off for one command.",
        indexed=False,
    ),
}

_INDEX = """

Before a release, `rlplug index $distribution` writes the file that help and completion read instead of
importing this package. Commit it, and write it again whenever the options or ids change."""


def generate(
    kind: str,
    name: str,
    out: Path,
    form: str = "",
) -> tuple[Path, dict[str, str]]:
    """Write the distribution `rlplug-<name>` into `out`, in one of the forms of its kind.

    Returns:
        Its directory, and the contents of the files by path.

    Raises:
        UsageError: the name cannot be used, the form does not exist, or the directory exists. Nothing was written then.
    """
    name = check_name(kind, name)
    form = form_of(kind, form)
    root = out / f"rlplug-{name}"
    if root.exists():
        raise UsageError(
            f"{root} exists already; choose another name, or another directory with --out"
        )
    files = render_files(kind, name, form)
    for path, text in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return root, files


def check_name(kind: str, name: str) -> str:
    """Return the name without the prefix that every distribution gets.

    Raises:
        UsageError: it is not allowed, is taken, or would name two things in the code.
    """
    name = name.removeprefix("rlplug-")
    if not _NAME.fullmatch(name):
        suggestion = "-".join(re.findall(r"[a-z0-9]+", name.lower())).lstrip("-0123456789")
        raise UsageError(
            f"'{name}' cannot be the name of a plugin: use small letters, digits and single hyphens, and start "
            f"with a letter, as in '{suggestion or 'my-idea'}'"
        )
    if len(name) > LONGEST:
        raise UsageError(
            f"'{name}' is too long for the name of a plugin: at most {LONGEST} characters"
        )
    if owner := _owner(kind, name):
        raise UsageError(f"the name '{name}' is taken: {owner}; choose another one")
    if _is_ambiguous(kind, camel(name)):
        raise UsageError(
            f"'{name}' would give the name {camel(name)} to two things in the code; choose another one"
        )
    return name


def form_of(kind: str, form: str) -> str:
    """Return the form, by default the first one of the kind.

    Raises:
        UsageError: the kind has no such form.
    """
    forms = KINDS[kind].forms
    if form and form not in forms:
        available = f"in the forms {' and '.join(forms)}" if forms else "in one form"
        raise UsageError(f"--kind {form}: '{kind}' comes {available}; choose it for {owners(form)}")
    return form or (forms[0] if forms else "")


def owners(form: str) -> str:
    """Return the nouns of the kinds that come in a form."""
    return " or ".join(kind.noun for kind in KINDS.values() if form in kind.forms)


def render_files(kind: str, name: str, form: str = "") -> dict[str, str]:
    """Return the contents of a plugin's files by path."""
    form = form_of(kind, form)
    values = _values(KINDS[kind], name, form) | {
        "batch": "Transitions" if form == "replay" else "Rollout"
    }
    files = {}
    folders = [TEMPLATES / part for part in ("common", kind, f"{kind}-{form}")]
    templates = [path for folder in folders for path in folder.rglob(f"*{SUFFIX}")]
    for template in sorted(templates):
        text = Template(template.read_text(encoding="utf-8")).substitute(values)
        files[_path(template, name)] = text
    return dict(sorted(files.items()))


def camel(name: str) -> str:
    """Return the class name of a plugin: `MyIdea` for `my-idea`."""
    return "".join(part.capitalize() for part in name.split("-"))


def bounds(version: str) -> str:
    """Return the compatible versions: from this one to the next major version, as `>=0.1,<1`."""
    major, minor = (int(part) for part in version.split(".")[:2])
    return f">={major}.{minor},<{major + 1}"


def _owner(kind: str, name: str) -> str:
    """Return who already uses a name, or ""."""
    if f"rlplug-{name}" in FIRST_PARTY:
        return f"rlplug-{name} is a package of rlplug itself"
    for group, names in KNOWN.items():
        if name in names:
            return f"it is the {NOUNS[group]} of {names[name]}"
    for record in plugins.records():
        if (record.group, record.id) == (KINDS[kind].group, name):
            return f"{record} is installed"
    return ""


def _is_ambiguous(kind: str, cls: str) -> bool:
    """Return whether a class of this name would hide something that the code uses."""
    forms = KINDS[kind].forms or ("",)
    code = [
        text
        for form in forms
        for path, text in render_files(kind, "own", form).items()
        if path.endswith(".py")
    ]
    nodes = [node for text in code for node in ast.walk(ast.parse(text))]
    used = {node.asname or node.name for node in nodes if isinstance(node, ast.alias)}
    used |= {node.id for node in nodes if isinstance(node, ast.Name)}
    return cls in used - {"Own", "OwnConfig"} or cls in vars(builtins)


def _path(template: Path, name: str) -> str:
    """Return the path of a template's file: `dot-` becomes a dot, `package` and `id` the plugin's names."""
    _, *parts = template.relative_to(TEMPLATES).parts
    parts[-1] = parts[-1].removesuffix(SUFFIX)
    names = {"package": _package(name), "id.toml": f"{name}.toml"}
    return "/".join(re.sub("^dot-", ".", names.get(part, part)) for part in parts)


def _package(name: str) -> str:
    return f"rlplug_{name.replace('-', '_')}"


def _values(kind: Kind, name: str, form: str) -> dict[str, str]:
    """Return the values of the templates' variables."""
    values = {
        "id": name,
        "distribution": f"rlplug-{name}",
        "package": _package(name),
        "cls": camel(name),
        "words": name.replace("-", " ").capitalize(),
        "env": f"{name}/{camel(name)}-v0",
        "bounds": bounds(__version__),
        "contract": str(CONTRACT),
        "group": kind.group,
        "year": str(datetime.date.today().year),
        "summary": f"{camel(name)}, {kind.noun} for rlplug",
    }
    needed = ("rlplug-core$bounds", *kind.requirements, *kind.form_requirements.get(form, ()))
    requirements = ", ".join(f'"{line}"' for line in needed)
    templates = {
        "requirements": requirements,
        "target": kind.target,
        "run": kind.run,
        "about": kind.about,
        "index": _INDEX if kind.indexed else "",
    }
    return values | {key: Template(text).substitute(values) for key, text in templates.items()}
