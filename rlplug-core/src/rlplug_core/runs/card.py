"""The model card of an exported policy, in Markdown: its scores, spaces, use and training."""

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

#: Options that are typed once for each value, because a value may contain commas.
REPEATED = ("wrap", "eval_wrap", "controller")
_CARD = """---
library_name: rlplug
tags:
- reinforcement-learning
- {env_tag}
- {algorithm_tag}
---
# {algorithm} on {env}

{intro}

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
    summary: Summary,
    config: RunConfig,
    description: Mapping[str, Any],
    spec: Spec,
    untrained: bool = False,
    program: Spec | None = None,
) -> str:
    """Return the card of a run's policy.

    Args:
        description: that of the export, with `step`, `wrap` and `wrap_each`.
        spec: the input and output of the loaded policy, in the environment's own units.
        untrained: whether the learner had made no update at that step.
        program: the inputs and outputs of `policy.onnx` and `policy.pt`, if there is one.
    """
    changed = {
        name: value
        for name, value in config["options"].items()
        if config.get("origins", {}).get(name) != "default"
    }
    versions = (config.get("environment") or {"versions": {}})["versions"]
    has_files = any(".py:" in words for words in description["wrap"])
    offline = bool(config["options"].get("offline"))
    return _CARD.format(
        algorithm=escape(summary.algorithm),
        env=escape(summary.env),
        algorithm_tag=tag(summary.algorithm),
        env_tag=tag(summary.env),
        scores=_scores(summary),
        obs=spec.obs,
        action=spec.action,
        intro=_intro(summary, description["step"], offline, untrained),
        programs=_programs(program),
        wrap=_wrappers(description),
        trust=", trust=True" if has_files else "",
        needs=_package_names(description["wrap"], has_files),
        command=command_of(summary, config),
        options=_rows((name, escape(_text(value))) for name, value in changed.items()),
        versions=", ".join(f"{name} {version}" for name, version in versions.items()),
    )


def _programs(program: Spec | None) -> str:
    """Return a line about `policy.onnx` and `policy.pt`, or ""."""
    if program is None:
        return ""
    return f"\n- `policy.onnx` and `policy.pt`: from `{program.obs}` to `{program.action}`"


def _intro(
    summary: Summary,
    step: int,
    offline: bool,
    untrained: bool,
) -> str:
    """Return a sentence that describes the policy."""
    name = escape(summary.algorithm)
    env = escape(summary.env)
    unit = "updates" if offline else "env steps"
    progress = f"{step:,} of {summary.total_timesteps:,} {unit}, seed {summary.seed}"
    if untrained:
        return (
            f"A policy that has learned nothing: after {progress}, {name} had made no update on {env}, "
            "and the weights are the initial ones."
        )
    return f"A policy that {name} learned on {env} in {progress}."


def _wrappers(description: Mapping[str, Any]) -> str:
    """Return the wrappers of the policy, and a line with those around each environment."""
    wrap = ", ".join(f"`{words}`" for words in description.get("wrap", ()))
    inner = ", ".join(f"`{words}`" for words in description.get("wrap_each", ()))
    line = f"\n- Around the environment itself, put them there: {inner}" if inner else ""
    return (wrap or "none") + line


def _package_names(wrap: Sequence[str], has_files: bool) -> str:
    """Return the end of a sentence: the packages that the policy needs in addition to rlplug-core."""
    if has_files:
        return " and the wrapper's file at the place above"
    return " and the plugins of the wrappers" if wrap else ""


def _scores(summary: Summary) -> str:
    scores = [
        ("last evaluation in training", _number(summary.last)),
        ("best evaluation", _number(summary.best)),
    ]
    if final := summary.final_eval:
        for prefix in ("last_", "") if "last_checkpoint" in final else ("",):
            mean = final[f"{prefix}return_mean"]
            spread = final[f"{prefix}return_std"]
            text = f"{figures(mean)} ± {figures(spread)} over {final['episodes']} episodes"
            scores.append((f"final evaluation of {final[f'{prefix}checkpoint']}", text))
    return _rows(scores)


def command_of(summary: Summary, config: Mapping[str, Any]) -> str:
    """Return the command line that trains a run again, and those that repeat its extensions."""
    origins = config.get("origins", {})
    typed = {
        name: value
        for name, value in config["options"].items()
        if origins.get(name) not in ("default", "preset")
    }
    if any(name.startswith("__main__") for name in (summary.algorithm, summary.env)):
        return "# made in Python, from a class that no command line reaches"
    words = [f"rlplug run {shell_word(summary.algorithm)} {shell_word(summary.env)}"]
    for name, value in typed.items():
        pairs = [("--set", f"{name}={_text(value)}")]
        if name in REPEATED:
            pairs = [("--" + name.replace("_", "-"), item) for item in value or ["none"]]
        words += [f"{option} {shell_word(text)}" for option, text in pairs]
    if summary.extensions:
        words.append("--name again")
    resumes = [
        f"rlplug resume again --total-timesteps {n}{' --rescale' * rescale}"
        for n, rescale in summary.extensions
    ]
    return "\n".join([clean(" ".join(words)).replace("\n", " "), *resumes])


def _rows(rows: Any) -> str:
    return "\n".join(f"| {name} | {value} |" for name, value in rows) or "| none | |"


def _number(value: float | None) -> str:
    return "-" if value is None else figures(value)


def escape(text: str) -> str:
    """Escape a string for Markdown, HTML and tables, in one line."""
    line = plain(text, 1000).replace("`", "'")
    return re.sub(r"[<>|\[\]\\]", lambda match: f"&#{ord(match[0])};", line)


def tag(text: str) -> str:
    """Return a string as a tag in the front matter."""
    return text if re.fullmatch(r"[\w./-]+", text) else json.dumps(plain(escape(text)))


def _text(value: object) -> str:
    """Return the value of an option as a user types it."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
