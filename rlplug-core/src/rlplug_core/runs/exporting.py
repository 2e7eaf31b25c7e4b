"""Export a run's policy as files that need no run, and load the policy from them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from rlplug_core.errors import UsageError
from rlplug_core.export.bundle import read, write
from rlplug_core.loop.plan import Plan
from rlplug_core.plugins.env_base import complete
from rlplug_core.plugins.single_wrappers import around_each
from rlplug_core.plugins.spec import WrapperSpec, wrap_env
from rlplug_core.runs.card import card
from rlplug_core.runs.directory import RunDirectory
from rlplug_core.runs.evaluation import Conditions, prepare_agent
from rlplug_core.runs.listing import is_untrained, readable_summary
from rlplug_core.runs.policy import Policy
from rlplug_core.runs.trust import require_plugins, unknown_wrappers
from rlplug_core.types import Spec


def export_policy(
    plan: Plan,
    directory: RunDirectory,
    out: Path,
    checkpoint: str = "best",
    onnx: bool = False,
    torchscript: bool = False,
) -> Path:
    """Write the policy of a run's checkpoint into the directory `out`, with a model card, `README.md`.

    Args:
        onnx: also as `policy.onnx`.
        torchscript: also as `policy.pt`.

    Raises:
        UsageError: the folder is not empty, or the policy cannot be exported.
        MissingPackage: a package that writes ONNX is not installed.
    """
    config = directory.config
    summary = readable_summary(directory.path)
    env = plan.make_env(1)
    try:
        if complete(env).learned():
            raise UsageError(
                f"the wrappers of {summary.name} have learned state, which an export cannot contain; use the run "
                f"itself: rlplug_core.load('{directory.path}')"
            )
        agent, clock = prepare_agent(plan, directory, env, Conditions(checkpoint), 0)
        description = {
            "run": summary.name,
            "algorithm": config["algorithm"],
            "env": config["env"],
            "checkpoint": checkpoint,
            "step": clock.steps,
            **_environment_of(plan),
        }
        program = env.spec if onnx or torchscript else None
        spec = Spec(complete(env).source.obs, complete(env).action_space, 1, env.spec.id)
        untrained = is_untrained(directory.path, clock.steps)
        text = card(summary, config, description, spec, untrained=untrained, program=program)
        return write(out, agent, env, description, text, onnx=onnx, torchscript=torchscript)
    finally:
        env.close()


def _environment_of(plan: Plan) -> dict[str, object]:
    """Return the part of an export's description about wrappers and environments.

    It has the wrappers that the loaded policy applies (`wrap`), those that belong around each environment
    (`wrap_each`), and the environment of the run's evaluations, which `evaluate` and `play` of the export make.
    """
    inner = [wrapping.words for wrapping in plan.wrappings if wrapping.wrapper is around_each]
    evaluation_wrappings = plan.wrappings if plan.eval_wrappings is None else plan.eval_wrappings
    return {
        "wrap": [
            wrapping.words for wrapping in plan.wrappings if wrapping.wrapper is not around_each
        ],
        "wrap_each": inner,
        "evaluation": {
            "env": plan.eval_source.name,
            "arguments": dict(plan.eval_source.arguments),
            "wrap": [wrapping.words for wrapping in evaluation_wrappings],
        },
    }


def load_export(
    directory: Path,
    deterministic: bool = True,
    trust: bool = False,
) -> Policy:
    """Return the policy of an export, with the wrappers that it was trained with.

    Raises:
        UsageError: `deterministic` is False, or a wrapper is missing. RlplugError: its files are damaged.
        Untrusted: a wrapper is not an installed plugin, and `trust` does not allow it.
    """
    if not deterministic:
        raise UsageError(
            f"{directory} is an export, which is greedy; load the run itself with deterministic=False"
        )
    export = read(directory)
    if not trust:
        require_plugins(
            directory, unknown_wrappers(export.about["wrap"], export.about.get("env", ""))
        )
    env = wrap_env(export.env, tuple(map(WrapperSpec.parse, export.about["wrap"])))
    return Policy(export.agent, env, origin=partial(load_export, directory.absolute(), trust=trust))
