"""The model card of an exported policy: content, results, training, use. Markdown for any hub."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rlplug_core.config.numbers import figures
from rlplug_core.errors import clean, plain
from rlplug_core.runs.files import shell_word
from rlplug_core.runs.listing import Summary
from rlplug_core.runs.schemas import RunConfig
from rlplug_core.types import Spec

#: Options that are typed once for each value; a comma is part of a value.
REPEATED = ("wrap", "eval_wrap", "controller")
_CARD = """---
library_name: rlplug
tags:
- reinforcement-learning
- {env_tag}
- {algorithm_tag}
---
# {algorithm} on {env}

{what}

| score | mean return |
|---|---|
{scores}

- Observations: `{obs}`
- Actions: `{action}`{programs}
- Wrappers: {wrap}

## Use

```python
from rlplug_core import load

policy = load("path/to/this/directory"{trust})
action = policy(observation)
```

The files hold numbers and JSON; nothing in them can run code. To load them you need only rlplug-core{needs}.

## Make it again

```sh
{command}
```

Options that are not defaults:

| option | value |
|---|---|
{options}

Made with {versions}.
"""


def card(
    found: Summary,
    config: RunConfig,
    about: Mapping[str, Any],
    spec: Spec,
    untrained: bool = False,
    program: Spec | None = None,
) -> str:
    """Return the card of a run's policy.

    Args:
        about: the export's description: `checkpoint`, `step`, `wrap`, `wrap_each`.
        spec: the input and output of the loaded policy, in the environment's own units.
        untrained: whether no update was made until then.
        program: the inputs and outputs of `policy.onnx` and `policy.pt`, if there is one.
    """
    chosen = {
        name: value
        for name, value in config["options"].items()
        if config.get("origins", {}).get(name) != "default"
    }
    versions = (config.get("environment") or {"versions": {}})["versions"]
    files = any(".py:" in words for words in about["wrap"])
    return _CARD.format(
        algorithm=escape(found.algorithm),
        env=escape(found.env),
        algorithm_tag=tag(found.algorithm),
        env_tag=tag(found.env),
        scores=_scores(found),
        obs=spec.obs,
        action=spec.action,
        what=_intro(found, about["step"], bool(config["options"].get("offline")), untrained),
        programs=_programs(program),
        wrap=_wrappers(about),
        trust=", trust=True" if files else "",
        needs=_package_names(about["wrap"], files),
        command=command_of(found, config),
        options=_rows((name, escape(_text(value))) for name, value in chosen.items()),
        versions=", ".join(f"{name} {version}" for name, version in versions.items()),
    )


def _programs(program: Spec | None) -> str:
    """Return a line about the programs of the policy."""
    if program is None:
        return ""
    return f"\n- `policy.onnx` and `policy.pt`: from `{program.obs}` to `{program.action}`"


def _intro(
    found: Summary,
    step: int,
    offline: bool,
    untrained: bool,
) -> str:
    """Return a sentence that describes the policy."""
    name = escape(found.algorithm)
    env = escape(found.env)
    unit = "updates" if offline else "env steps"
    taken = f"{step:,} of {found.total_timesteps:,} {unit}, seed {found.seed}"
    if untrained:
        return (
            f"A policy that has learned nothing: after {taken}, {name} had made no update on {env}, "
            "and the weights are the initial ones."
        )
    return f"A policy that {name} learned on {env} in {taken}."


def _wrappers(about: Mapping[str, Any]) -> str:
    """Return the wrappers, and a line with those around the environment itself."""
    wrap = ", ".join(f"`{words}`" for words in about.get("wrap", ()))
    each = ", ".join(f"`{words}`" for words in about.get("wrap_each", ()))
    further = f"\n- Around the environment itself, put them there: {each}" if each else ""
    return (wrap or "none") + further


def _package_names(wrap: Sequence[str], files: bool) -> str:
    """Return the packages that the policy needs in addition to rlplug-core, as the end of a sentence."""
    if files:
        return " and the wrapper's file at the place above"
    return " and the plugins of the wrappers" if wrap else ""


def _scores(found: Summary) -> str:
    scores = [
        ("last evaluation in training", _number(found.last)),
        ("best evaluation", _number(found.best)),
    ]
    if final := found.final_eval:
        for of in ("last_", "") if "last_checkpoint" in final else ("",):
            mean = final[f"{of}return_mean"]
            spread = final[f"{of}return_std"]
            text = f"{figures(mean)} ± {figures(spread)} over {final['episodes']} episodes"
            scores.append((f"final evaluation of {final[f'{of}checkpoint']}", text))
    return _rows(scores)


def command_of(found: Summary, config: Mapping[str, Any]) -> str:
    """Return the command line that trains a run again, and those that repeat its extensions."""
    origins = config.get("origins", {})
    typed = {
        name: value
        for name, value in config["options"].items()
        if origins.get(name) not in ("default", "preset")
    }
    if any(name.startswith("__main__") for name in (found.algorithm, found.env)):
        return "# made in Python, from a class that no command line reaches"
    words = [f"rlplug run {shell_word(found.algorithm)} {shell_word(found.env)}"]
    for name, value in typed.items():
        given = [("--set", f"{name}={_text(value)}")]
        if name in REPEATED:
            given = [("--" + name.replace("_", "-"), one) for one in value or ["none"]]
        words += [f"{option} {shell_word(text)}" for option, text in given]
    if found.extensions:
        words.append("--name again")
    further = [
        f"rlplug resume again --total-timesteps {n}{' --rescale' * rescale}"
        for n, rescale in found.extensions
    ]
    return "\n".join([clean(" ".join(words)).replace("\n", " "), *further])


def _rows(rows: Any) -> str:
    return "\n".join(f"| {name} | {value} |" for name, value in rows) or "| none | |"


def _number(value: float | None) -> str:
    return "-" if value is None else figures(value)


def escape(text: str) -> str:
    """Escape a string for Markdown, HTML and tables, in one line."""
    line = plain(text, 1000).replace("`", "'")
    return re.sub(r"[<>|\[\]\\]", lambda found: f"&#{ord(found[0])};", line)


def tag(text: str) -> str:
    """Return a string as a tag in the front matter."""
    return text if re.fullmatch(r"[\w./-]+", text) else json.dumps(plain(escape(text)))


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
