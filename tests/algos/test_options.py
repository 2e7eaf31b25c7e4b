"""Options, presets and spaces before training: help for each option, one sentence for each mistake."""

from __future__ import annotations

import dataclasses
import sys
import tomllib
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import pytest

from rlplug_algos.off_policy.sac import SAC
from rlplug_algos.policy_gradient.a2c import A2C
from rlplug_algos.policy_gradient.ppo import PPO
from rlplug_algos.value.dqn import DQN
from rlplug_core.clock import Clock
from rlplug_core.config.parse import convert, parse
from rlplug_core.config.run_options import RunOptions
from rlplug_core.config.schema import flatten, schema
from rlplug_core.context import Context
from rlplug_core.errors import BadConfig, UsageError
from rlplug_core.loop.build import build
from rlplug_core.plugins import indexing, records
from rlplug_core.plugins.presets import flat, preset
from rlplug_core.seeds import Seeds
from rlplug_core.types import Spec
from tests.algos.conftest import plan_of
from tests.tables import for_each

#: Every name of this distribution with its class; several names may have one class.
ENTRIES = metadata.distribution("rlplug-algos").entry_points.select(group="rlplug.algorithms")
ALGORITHMS: dict[str, Any] = {entry.name: entry.load() for entry in ENTRIES}
#: One name for each class.
CLASSES = {name: cls for name, cls in ALGORITHMS.items() if cls.__module__.rpartition(".")[2] == name.replace("-", "_")}
#: Algorithms that are made of others, and get their networks from them.
COMPOSED = {"independent", "self-play"}
SIMPLE = [name for name in CLASSES if name not in COMPOSED]
OPTIONS = [(name, option) for name, algorithm in CLASSES.items() for option in schema(algorithm.Config)]
PRESETS = Path(str(resources.files("rlplug_algos"))) / "presets"


def test_each_class_is_listed_once() -> None:
    assert {*CLASSES.values()} == {*ALGORITHMS.values()}


def test_index_files_match_the_code() -> None:
    """Check the same as `rlplug index --check rlplug-algos`."""
    contributions = [record for record in records() if record.distribution == "rlplug-algos"]
    assert len(contributions) >= 39
    assert not [indexing.drift(record) for record in contributions if indexing.drift(record)]


def test_options_have_help() -> None:
    """The help is a phrase; the command line shows type and default next to it."""
    faults = [
        f"{algorithm}.{option.name}: {option.help!r}"
        for algorithm, option in OPTIONS
        if len(option.help.split()) < 2 or option.help.endswith(".")
    ]
    assert not faults, faults


def test_options_reject_values_of_wrong_types() -> None:
    faults = []
    for algorithm, option in OPTIONS:
        try:
            convert(ALGORITHMS[algorithm].Config, {option.name: {"no": "thing"}}, algorithm)
            faults.append(f"{algorithm}.{option.name} accepts a dictionary")
        except BadConfig as error:
            if option.name.partition(".")[0] not in str(error):
                faults.append(f"{algorithm}.{option.name} is not named in: {error}")
    assert not faults, faults


def test_configs_convert() -> None:
    """Defaults survive a round trip as a dictionary and as command line arguments."""
    for algorithm in CLASSES:
        config = ALGORITHMS[algorithm].Config
        written = flatten(config())
        words = {
            option.name: parse(option, str(written[option.name]))
            for option in schema(config)
            if option.type != "repeated"
        }
        assert convert(config, written, algorithm) == config(), algorithm
        assert convert(config, words, algorithm) == config(), algorithm


#: Short, with everything enabled that other options need.
BUSY = {
    "learning_starts": 64, "batch_size": 16, "n_steps": 8, "train_freq": 16, "target_update_interval": 2,
    "replay_ratio": 1.0, "priority.alpha": 0.5,
    "action_noise": "ornstein-uhlenbeck", "net.hidden": [8], "critic_net.hidden": [8], "memory": "gru",
    "recurrent_hidden_size": 8, "sequence_length": 4, "burn_in": 2, "sequence_period": 2,
}  # fmt: skip
#: Options that are read only with convolutions; `channels` is read to ask for them.
OF_IMAGES = {f"{net}.{name}" for net in ("net", "critic_net") for name in ("kernels", "strides")}


def watch(config: Any, prefix: str, read: set[str]) -> None:
    """Add the dotted name of every field of a configuration and its copies to `read` when it is read.

    Code that copies or checks a configuration reads all fields without using them.
    """
    nested = {field.name for field in fields(config) if is_dataclass(getattr(config, field.name))}
    for name in nested:
        watch(getattr(config, name), f"{prefix}{name}.", read)

    def get(self: Any, name: str) -> Any:
        code = sys._getframe(1).f_code
        if code.co_filename != dataclasses.__file__ and code.co_name != "__post_init__":
            read.add(prefix + name)
        return object.__getattribute__(self, name)

    kind = type(config)
    object.__setattr__(config, "__class__", type(kind.__name__, (kind,), {"__getattribute__": get}))


@for_each("algorithm", SIMPLE)
def test_options_are_read(algorithm: str) -> None:
    """An option that is not read does nothing."""
    names = {option.name for option in schema(ALGORITHMS[algorithm].Config)}
    busy = {name: value for name, value in BUSY.items() if name in names}
    if "memory" in names:  # the critic then reads the memory, and has no layers of its own
        busy.pop("critic_net.hidden", None)
    env = "Chain" if "Discrete" in ALGORITHMS[algorithm].actions else "Continuous"
    plan = plan_of(algorithm, env, {**busy, "inline": True, "total_timesteps": 300})
    read = set[str]()
    watch(plan.config, "", read)
    runner = build(plan, Clock(300))
    runner.run(lambda: None)
    runner.close()
    assert runner.clock.updates > 0
    assert names - read - OF_IMAGES == set()


@pytest.mark.parametrize(
    ("algorithm", "name"),
    [("crossq", "tau"), ("sac-discrete", "random_steps"), ("trpo", "learning_rate")],
)
def test_options_without_effect_do_not_exist(algorithm: str, name: str) -> None:
    with pytest.raises(BadConfig, match=f"{algorithm} has no option '{name}'"):
        convert(ALGORITHMS[algorithm].Config, {name: 1}, algorithm)


VALUES = ("dqn", "c51", "qrdqn", "iqn", "vqn", "vsarsa", "nstep-q")


@for_each("algorithm", [*VALUES, "ppo", "sac-discrete", "acer"])
def test_output_gain_applies_to_policies_and_choosing_values(make_learner: Callable[..., Any], algorithm: str) -> None:
    """The last layer of a critic of an actor-critic starts as always."""
    usual, given = (norms(make_learner(algorithm, "Chain", **more)) for more in ({}, {"net.output_gain": 0.5}))
    where = {name for name, norm in usual.items() if given[name] != pytest.approx(norm, rel=1e-3)}
    assert where
    assert not {name for name in where if name.startswith(("critic", "values"))}


def norms(learner: Any) -> dict[str, float]:
    """Return the norms of all parameters; those of orthogonal weights do not depend on the draw."""
    return {name: float(one.detach().norm()) for name, one in learner.named_parameters()}


@for_each(
    "algorithm, options, message",
    [
        ("noisy-dqn", {"net.output_gain": 0.5}, r"noisy layers have .* leave net.output_gain at none"),
        ("crossq", {"critic_net.std": "state"}, r"leave critic_net.std at its default"),
        ("crossq", {"critic_net.output_gain": 0.5}, r"leave critic_net.output_gain at its default"),
        (
            "ppo",
            {"recurrent_hidden_size": 64},
            r"^recurrent_hidden_size is the former name of a memory's units; write --memory gru:units=64",
        ),
        (
            "ppo",
            {"memory": "./mine.py:Mine", "recurrent_cell": "gru"},
            r"^recurrent_cell is a former option of the memories gru and lstm; leave it out with --memory",
        ),
        ("sac", {"burn_in": 5}, r"burn_in is an option of sequences for a memory; give --memory gru too"),
        ("ppo", {"memory": "gruu"}, r"no memory 'gruu' is installed; did you mean 'gru'"),
        ("a2c", {"memory": "gru:unit=3"}, r"memory gru has no option 'unit'; did you mean 'units'"),
        *(
            (
                one,
                {"normalize_advantage": True, "n_steps": 1},
                r"batch with one sample is always 0.* increase --num-envs",
            )
            for one in ("a2c", "vac")
        ),
        ("ppo", {"batch_size": 1}, r"batch with one sample is always 0.* --no-normalize-advantage"),
        ("trpo", {"n_steps": 1}, r"batch with one sample is always 0.* --n-steps"),
        (
            "ppo",
            {"recurrent_cell": "gru", "n_steps": 8, "batch_size": 7},
            r"has no room for a sequence of 8 steps; give --batch-size 8 or more, or --n-steps 7 or fewer",
        ),
        *(
            (
                one,
                {"autotune": False, "target_entropy": -1.0},
                r"target_entropy needs autotune, which is off; leave target_entropy at none",
            )
            for one in ("sac-discrete", "crossq")
        ),
    ],
)
def test_options_without_effect_raise(
    make_learner: Callable[..., Any], algorithm: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        make_learner(algorithm, "Continuous" if algorithm == "crossq" else "Chain", **options)


def test_convolutions_without_images_raise(make_learner: Callable[..., Any]) -> None:
    for algorithm in SIMPLE:
        env = "Chain" if "Discrete" in ALGORITHMS[algorithm].actions else "Continuous"
        for net in ("net", "critic_net") if algorithm == "crossq" else ("net",):
            layers = {f"{net}.{name}": [3] for name in ("channels", "kernels", "strides")}
            for options in (layers, {f"{net}.conv_layer_norm": True}):
                message = r"^net.channels, kernels, strides and conv_layer_norm are for images, .* leave them out"
                with pytest.raises(UsageError, match=message):
                    make_learner(algorithm, env, **options)


def test_options_and_run_options_have_different_names() -> None:
    of_runs = {option.name for option in schema(RunOptions)}
    faults = [f"{algorithm}.{option.name}" for algorithm, option in OPTIONS if option.name in of_runs]
    assert not faults, faults


def test_search_ranges_contain_the_default() -> None:
    """A tuner can return to the default, which is known to work."""
    faults = []
    for algorithm in SIMPLE:
        searched = [option for option in schema(ALGORITHMS[algorithm].Config) if option.search is not None]
        faults += [] if searched else [f"{algorithm} has no search range"]
        for option in searched:
            low, high = option.search.values  # type: ignore[union-attr]
            if not (low <= option.default <= high or option.default == 0):
                faults.append(f"{algorithm}.{option.name}: {option.default} is not in {low} to {high}")
    assert not faults, faults


@pytest.mark.parametrize(
    ("algorithm", "own"),
    [
        ("c51", {"n_atoms"}),
        ("qrdqn", {"n_quantiles", "kappa"}),
        ("iqn", {"n_quantiles", "n_target_quantiles", "kappa"}),
    ],
)
def test_distributional_algorithms_search_their_own_options(algorithm: str, own: set[str]) -> None:
    of = {
        name: {option.name for option in schema(ALGORITHMS[name].Config) if option.search is not None}
        for name in ("dqn", algorithm)
    }
    assert of[algorithm] == of["dqn"] | own


BOX = spaces.Box(-1, 1, (2,), np.float32)


@pytest.mark.parametrize(
    ("algorithm", "space", "needs"),
    [
        (DQN, BOX, "Discrete"),
        (DQN, spaces.MultiDiscrete([2, 3]), "Discrete"),
        (SAC, spaces.Discrete(2), "Box"),
        (SAC, spaces.Dict({"lever": BOX}), "Box"),
        (type("Two", (A2C,), {"actions": ("Discrete", "Box")}), spaces.Text(3), "Discrete or Box"),
        *((cls, spaces.Text(3), "Discrete, MultiDiscrete, MultiBinary, Box or Dict") for cls in (A2C, PPO)),
    ],
)
def test_wrong_action_space_raises_one_sentence(algorithm: Any, space: spaces.Space[Any], needs: str) -> None:
    """It names the needed spaces, the given one, and the command that lists algorithms that fit."""
    with pytest.raises(UsageError) as caught:
        algorithm(Spec(BOX, space, 1, "Some-v1"), algorithm.Config(), Context(Seeds(0)))
    kind = type(space).__name__
    also = {"Dict": ", which a Tuple is as well", "MultiDiscrete": ", which a Box of integers is as well"}
    given = kind + also.get(kind, "")
    assert str(caught.value) == (
        f"{algorithm.__name__} needs {needs} actions and Some-v1 has {given}; "
        f"'rlplug list --actions {kind}' shows those that take {kind}"
    )


def test_wrong_action_space_raises_before_anything_is_written(tmp_path: Path) -> None:
    from rlplug_core.runs.api import train

    with pytest.raises(UsageError, match="DQN needs Discrete actions"):
        train("dqn", "rlplug_core.testing.envs:Continuous", out=tmp_path / "runs", hooks=False)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("algorithm", ["ppo", "dqn", "acktr", "trpo", "vpg"])
def test_unsound_runner_raises_with_the_reason(make_learner: Callable[..., Any], algorithm: str) -> None:
    with pytest.raises(UsageError, match=rf"{algorithm} does not run under 'async': .*; use --runner sync"):
        make_learner(algorithm, "Chain", runner="async")


@pytest.mark.parametrize(
    ("runner", "reason"),
    [("async", "eigenvectors while another worker writes them"), ("decoupled", "its Fisher matrix needs actions")],
)
def test_acktr_says_why_it_needs_the_sync_runner(make_learner: Callable[..., Any], runner: str, reason: str) -> None:
    with pytest.raises(UsageError, match=rf"acktr does not run under '{runner}': .*{reason}.*; use --runner sync"):
        make_learner("acktr", "Chain", runner=runner)


def test_presets_belong_to_algorithms() -> None:
    files = {path.stem for path in PRESETS.glob("*.toml")}
    assert {"a2c", "dqn", "ppo"} <= files <= ALGORITHMS.keys()


def test_presets_have_existing_options_with_valid_values() -> None:
    run = {option.name for option in schema(RunOptions)}
    for path in sorted(PRESETS.glob("*.toml")):
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        assert content, path.stem
        tables = {**content.pop("kind", {}), **content}
        for name, table in tables.items():
            values = flat(table) if name not in ("extends", "summary") else {"seed": 1}
            assert values, f"{path.stem}: {name} is empty"
            convert(RunOptions, {key: value for key, value in values.items() if key in run}, path.stem)
            config = ALGORITHMS[path.stem].Config
            convert(config, {key: value for key, value in values.items() if key not in run}, path.stem)


def test_presets_are_found_by_algorithm_and_environment() -> None:
    """By the names that a user types, in the installed package."""
    assert preset("dqn", "CartPole-v1")["train_freq"] == 256
    assert preset("ppo", "Pendulum-v1") != preset("ppo", "CartPole-v1")
    assert "train_freq" not in preset("dqn", "Unknown-v0")
