"""`--net`: a file of options or a custom function, its precedence, its errors, and its record in the run."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rlplug_cli.app import app
from rlplug_cli.collecting import collect
from rlplug_cli.commands.run import options_of
from rlplug_core.config.import_string import load_target
from rlplug_core.config.options import Config
from rlplug_core.config.run_options import RunOptions
from rlplug_core.config.schema import schema
from rlplug_core.errors import BadConfig
from rlplug_core.loop.learner_checks import check_ignored
from tests.cli.conftest import SHORT
from tests.cli.warm import Fork

OWN = """
from torch import nn
def make(space, net):
    return nn.Sequential(nn.Linear(space.shape[0], 8), nn.Tanh()), 8
"""
#: The environment in docs/networks.md with observations that only the critic needs.
COIN = re.findall(r"```python title=coin.py\n(.*?)```", Path("docs/networks.md").read_text("utf-8"), re.DOTALL)[0]


pytestmark = pytest.mark.usefixtures("no_mlflow")


def config(run: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(Path("runs", run, "config.json").read_text(encoding="utf-8"))
    return content


def collect_options(net: str | None, *pairs: str, file: Path | None = None, algorithm: str = "ppo") -> dict[str, Any]:
    """Return the option values of the words, without presets."""
    return collect({}, pairs, file, options_of("algorithms", algorithm), algorithm, net)[0]


def test_network_file_equals_its_options() -> None:
    Path("n.toml").write_text('hidden = [9]\nactivation = "gelu"\nlayer_norm = true\n', encoding="utf-8")
    pairs = ("net.hidden=[9]", "net.activation=gelu", "net.layer_norm=true")
    assert collect_options("n.toml") == collect_options(None, *pairs)


def test_network_file_can_set_options_to_none(place: Path) -> None:
    """Only options that may be none."""
    Path("n.toml").write_text('gain = "none"\n', encoding="utf-8")
    Path("c.toml").write_text('net.gain = "none"\n', encoding="utf-8")
    assert collect_options("n.toml") == collect_options(None, file=place / "c.toml") == {"net.gain": "none"}
    Path("n.toml").write_text('hidden = "none"\n', encoding="utf-8")
    with pytest.raises(
        BadConfig, match=r"n\.toml: 'hidden': expected a list of numbers without quotes, as in \[64, 64\], got 'none'"
    ):
        collect_options("n.toml")


def test_precedence_is_option_set_net_config(place: Path) -> None:
    Path("n.toml").write_text('hidden = [9]\nactivation = "elu"\ngain = 2.0\n', encoding="utf-8")
    Path("c.toml").write_text('net.hidden = [7]\nnet.init = "xavier_uniform"\n', encoding="utf-8")
    options = options_of("algorithms", "ppo")
    typed = {"option_net__gain": 3.0}
    values, origins = collect(typed, ["net.activation=relu"], place / "c.toml", options, "ppo", "n.toml")
    assert values == {"net.hidden": [9], "net.activation": "relu", "net.gain": 3.0, "net.init": "xavier_uniform"}
    assert origins == {"net.hidden": "net", "net.activation": "set", "net.gain": "option", "net.init": "config"}


def test_net_applies_to_all_networks() -> None:
    assert collect_options("./x.py:make", algorithm="crossq") == {
        "net.factory": "./x.py:make",
        "critic_net.factory": "./x.py:make",
    }


def test_critic_net_takes_its_own_file() -> None:
    """Options with the same name in `--net` are only its defaults."""
    Path("n.toml").write_text('hidden = [9]\nactivation = ["elu"]\n', encoding="utf-8")
    Path("v.toml").write_text("hidden = [32, 16]\n", encoding="utf-8")
    options = options_of("algorithms", "ppo")
    values, origins = collect({}, ["critic_net.activation=[tanh,relu]"], None, options, "ppo", "n.toml", "v.toml")
    assert values == {
        "net.hidden": [9],
        "net.activation": ["elu"],
        "critic_net.hidden": [32, 16],
        "critic_net.activation": ["tanh", "relu"],
    }
    assert origins["critic_net.hidden"] == "critic-net"


def test_observation_keys_are_checked_shown_and_recorded(rlplug: Callable[..., Any]) -> None:
    """In the run, its description, `info`, and the error for an unknown key."""
    Path("coin.py").write_text(COIN, encoding="utf-8")
    words = ("--net.obs", "joints", "--critic-net.obs", "state,joints", "--critic-net.hidden", "8,4")
    result = rlplug("run", "ppo", "./coin.py:Coin", *words, "--net.activation", "[tanh,relu]", *SHORT, "--name", "own")
    assert result.code == 0, result.err
    assert "obs joints · Linear 2→64" in result.out
    assert "obs state,joints · Linear 3→8 · Linear 8→4 · Linear 4→1" in " ".join(result.out.split())
    options = config("own")["options"]
    assert (options["net.obs"], options["critic_net.obs"]) == (["joints"], ["state", "joints"])
    assert options["net.activation"] == ["tanh", "relu"]
    assert "critic_net.hidden" in rlplug("info", "ppo", "./coin.py:Coin").out
    result = rlplug("run", "ppo", "./coin.py:Coin", "--net.obs", "joint", *SHORT, "--name", "wrong")
    assert (result.code, len(result.err.strip().splitlines())) == (2, 1)
    assert "'joint', which is not a key of the observations; the keys are 'joints' and 'state'" in result.err
    result = rlplug("run", "ppo", "CartPole-v1", "--net.activation", "tanh,swish")
    assert "option '--net.activation': expected one of tanh, relu, elu" in result.err


@pytest.mark.parametrize(
    ("net", "text", "message"),
    [
        (
            "n.toml",
            "hiden = [3]\n",
            "n.toml: a network has no 'hiden'; did you mean 'hidden'? ('rlplug info",
        ),
        (
            "n.toml",
            'hidden = "big"\n',
            "n.toml: 'hidden': expected a list of numbers without quotes, as in [64, 64], got 'big'",
        ),
        ("n.toml", 'hidden = [3, "x"]\n', "n.toml: 'hidden': expected numbers as in 64,64, got [3, 'x']"),
        ("n.toml", 'activation = "swish"\n', "n.toml: 'activation': expected one of tanh, relu,"),
        ("n.toml", "gain = 0\n", "n.toml: 'gain': expected a number above 0, got 0"),
        ("n.toml", "hidden = [", "the network file n.toml is not TOML"),
        ("gone.toml", "", "the network file gone.toml cannot be read: No such file or directory"),
        ("./my_net.py", "", "it does not name a function; write --net ./my_net.py:make or --net my_net.toml"),
        ("wide", "", "it does not name a function; write --net ./my_net.py:make or --net my_net.toml"),
        ("./gone.py:make", "", "there is no file"),
        ("./n.py:mkae", "", "has no 'mkae'; did you mean 'make'?"),
    ],
)
def test_invalid_networks_are_refused_before_anything_is_written(
    rlplug: Callable[..., Any], net: str, text: str, message: str
) -> None:
    Path("n.toml").write_text(text, encoding="utf-8")
    Path("n.py").write_text(OWN, encoding="utf-8")
    result = rlplug("run", "ppo", "CartPole-v1", "--net", net)
    assert result.code in (2, 3)
    assert message in result.err
    assert len(result.err.strip().splitlines()) == 1
    assert not Path("runs").exists()


@pytest.mark.slow
def test_custom_network_resumes_exactly_in_another_process(process: Callable[..., Any]) -> None:
    """The run no longer needs the file of the network, and equals an uninterrupted run."""
    Path("n.py").write_text(OWN, encoding="utf-8")
    words = ("CartPole-v1", "--net", "./n.py:make", "--net.shared", *SHORT)
    result = process("run", "a2c", *words, "--name", "own")
    assert result.code == 0, result.err
    (source,) = config("own")["sources"].values()
    assert Path("runs/own", source["copy"]).read_text(encoding="utf-8") == OWN
    assert config("own")["origins"]["net.factory"] == "net"
    for name in ("one", "other"):
        assert process("run", "a2c", *words, "--name", name).code == 0
        if name == "other":
            Path("n.py").unlink()
        assert process("resume", name, "--total-timesteps", "900").code == 0
    finals = [sorted(Path("runs", name, "checkpoints").glob("final-*"))[-1] for name in ("one", "other")]
    weights = [(final / "learner.safetensors").read_bytes() for final in finals]
    assert weights[0] == weights[1]
    assert process("evaluate", "other", "--episodes", "2").code == 0


def test_help_shows_net_once_if_there_is_a_network(rlplug: Callable[..., Any]) -> None:
    for algorithm in ("ppo", "dqn", "crossq"):
        lines = rlplug("run", algorithm, "--help").out.splitlines()
        assert sum(line.startswith("  --net ") for line in lines) == 1
    Path("plain.py").write_text(PLAIN, encoding="utf-8")
    assert "--net " not in rlplug("run", "./plain.py:Plain", "--help").out


PLAIN = """
from rlplug_core.algorithm import Algorithm
from rlplug_core.config.options import Config
class Plain(Algorithm):
    Config = Config
"""


SCRIPT = """
import rlplug_core
from torch import nn
def make(space, net):
    return nn.Sequential(nn.Linear(space.shape[0], 8), nn.Tanh()), 8
def train(make):
    options = {"net": {"factory": make, "hidden": [4]}, "total_timesteps": 64, "n_steps": 8, "eval_every": 64,
               "eval_episodes": 1, "final_eval_episodes": 1}
    return rlplug_core.train("a2c", "CartPole-v1", options, name="own")
if __name__ == "__main__":
    try:
        train(lambda space, net: None)
    except rlplug_core.UsageError as error:
        print(error)
    run = train(make)
    print(run.options["net.factory"], run.options["net.hidden"])
"""


def test_python_takes_a_function(place: Path, fork: Callable[..., Fork]) -> None:
    """A resume imports it by its name; a lambda has no name."""
    Path("script.py").write_text(SCRIPT, encoding="utf-8")
    output, _ = fork("--script", "script.py", stdout=subprocess.PIPE).communicate()
    first, second = output.splitlines()
    assert first.startswith("net.factory: lambda is a lambda, which no other process can import")
    assert second == f"{place}/script.py:make [4]"


def test_completion_suggests_files_and_names() -> None:
    """In all places that take a file, also in a list."""
    lines = {
        "run ppo CartPole-v1 --net ": "file,", "check env ./m": "file,./m", "check env cartp": "CartPole-v1",
        "sweep ./a": "file,./a", "sweep a2c,dq": "a2c,dqn", "sweep a2c cartpole-v1,./m": "file,cartpole-v1,./m",
        "sweep a2c ./m": "file,./m", "tune ac": "acktr", "evolve pp": "ppo", "info ./m": "file,./m",
        "info cartp": "CartPole-v1", "run cql Pendulum-v1 --dataset d": "file,d",
        "run a2c CartPole-v1 --wrap ./m": "file,./m",
        "run a2c CartPole-v1 --log ./m": "file,./m", "run a2c CartPole-v1 --init ./r": "file,./r",
    }  # fmt: skip
    for line, word in lines.items():
        count = str(len(f"rlplug {line}x".split()) - 1)
        words = {"_RLPLUG_COMPLETE": "bash_complete", "COMP_WORDS": f"rlplug {line}", "COMP_CWORD": count}
        suggestions = CliRunner().invoke(app, env=words, prog_name="rlplug").output.split()
        assert any(suggestion.endswith(word) for suggestion in suggestions), (line, suggestions)


def test_name_of_the_option_is_reserved() -> None:
    assert "net" not in {option.name for option in schema(RunOptions)} | {option.name for option in schema(Config)}
    from rlplug_core.plugins.reserved import RESERVED

    assert "net" in RESERVED


SUBCLASS = """
from torch import nn
from rlplug_algos.policy_gradient.ppo import PPO
class Own(PPO):
    def build(self):
        raise RuntimeError("not built")
class Complete(PPO):
    def build(self):
        super().build()
class Incomplete(PPO):
    def build(self):
        super().build()
        self.scale_reward = nn.Identity()
        self.critic.output = nn.Linear(64, 1)
"""


def test_option_that_a_subclass_ignores_is_refused(place: Path) -> None:
    """Only `PPO.build` reads normalize_reward; other methods read other options, and a default has no effect."""
    Path("mine.py").write_text(SUBCLASS, encoding="utf-8")
    own = load_target("./mine.py:Own", "algorithm")
    complete = load_target("./mine.py:Complete", "algorithm")
    config = own.Config(normalize_reward=True, gamma=0.5, popart=True)
    with pytest.raises(BadConfig, match=r"Own ignores the option 'normalize_reward': only PPO.build reads it"):
        check_ignored(own, config, ["gamma", "normalize_reward"])
    check_ignored(own, config, ["gamma"])
    check_ignored(own, own.Config(), ["normalize_reward"])
    check_ignored(complete, config, ["gamma", "normalize_reward", "popart"])
    words = ["run", "./mine.py:Own", "CartPole-v1", "--normalize-reward", *SHORT]
    result = CliRunner().invoke(app, words)
    assert "ignores the option '--normalize-reward'" in str(result.exception)
    for option, part in (("--normalize-reward", "RewardScale"), ("--popart", "PopArt")):
        result = CliRunner().invoke(app, ["run", "./mine.py:Incomplete", "CartPole-v1", option, *SHORT])
        assert f"after build it has no {part}" in str(result.exception)
        result = CliRunner().invoke(app, ["run", "./mine.py:Complete", "CartPole-v1", option, "--name", part, *SHORT])
        assert result.exit_code == 0


def test_run_and_info_print_the_network() -> None:
    result = CliRunner().invoke(app, ["info", "ppo", "CartPole-v1"])
    lines = result.output.splitlines()
    expected = [
        "network      policy  4,610 parameters  Linear 4→64 · Linear 64→64 · Linear 64→2",
        "             critic  4,545 parameters  Linear 4→64 · Linear 64→64 · Linear 64→1",
    ]
    assert lines[-2:] == expected
    result = CliRunner().invoke(app, ["run", "ppo", "CartPole-v1", *SHORT])
    assert "\n".join(expected) in result.output
    result = CliRunner().invoke(app, ["info", "dqn", "Pendulum-v1"])
    assert "network      not made: DQN needs Discrete actions" in result.output
