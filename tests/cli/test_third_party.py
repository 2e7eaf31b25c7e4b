"""Environments of other packages train with their id, without extra code.

Packages that are not installed or do not work with this version of MuJoCo are skipped. `nox -s families` has all of
them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import gymnasium
import pytest
from PIL import Image

from rlplug_core import open_run
from rlplug_core.testing.distributions import write_distribution
from rlplug_envs.families import registry
from tests.cli.conftest import Result

#: Options of a short run with two evaluations.
WORDS = ("--total-timesteps", "120", "--eval-every", "60", "--eval-episodes", "1", "--final-eval-episodes", "1")
SHORTER = ("--env.config.duration", "5", "--env.config.lanes_count", "2")
ENVS = [
    ("highway_env", "a2c", "highway-fast-v0", SHORTER),
    ("highway_env", "sac", "parking-v0", ("--env.config.duration", "5")),
    ("dm_control", "sac", "dm_control/cartpole-balance-v0", ("--wrap", "time-limit:steps=50")),
    ("gymnasium_robotics", "sac", "FetchSlide-v4", ()),
    ("gymnasium_robotics", "sac", "FetchReachDense-v4", ("--her", "4")),
    ("gymnasium_robotics", "ppo", "PointMaze_UMaze-v3", ("--env.max_episode_steps", "50")),
    ("crafter", "ppo", "CrafterReward-v1", ("--env.max_episode_steps", "20", "--n-steps", "16")),
]
#: The message if MuJoCo is newer than a package supports.
NEWER = "install versions that go together"


@pytest.mark.parametrize(("module", "algorithm", "env", "words"), ENVS, ids=[env for _, _, env, _ in ENVS])
@pytest.mark.filterwarnings("ignore")  # other packages give many warnings
def test_run_needs_only_the_id(
    module: str, algorithm: str, env: str, words: tuple[str, ...], process: Callable[..., Result], place: Path
) -> None:
    if find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    quiet = {"RLPLUG_DISABLED_PLUGINS": "mlflow", "MUJOCO_GL": "egl", "OMP_NUM_THREADS": "1"}
    result = process("run", algorithm, env, *WORDS, *words, "--name", "one", **quiet)
    if NEWER in result.err:
        pytest.skip(f"{module} does not run with this version of MuJoCo: {result.err.splitlines()[-1]}")
    assert result.code == 0, result.err
    assert f"environment  {env}: observation space " in result.out
    assert "steps/s by itself" in result.out
    steps, returns = open_run("one").curve()
    assert len(steps) == len(returns) >= 2


@pytest.mark.skipif(find_spec("highway_env") is None, reason="highway_env is not installed")
def test_pygame_environments_render_without_a_screen(
    process: Callable[..., Result], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Highway draws nothing with the dummy driver of SDL."""
    for variable in ("SDL_VIDEODRIVER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(variable, raising=False)
    result = process("info", "highway-fast-v0", "--frame", "cars.png")
    assert result.code == 0, result.err
    assert len(Image.open("cars.png").getcolors() or ()) > 2


CODE = """
import gymnasium
def register():
    if "FromAfar-v0" not in gymnasium.registry:
        gymnasium.register("FromAfar-v0", "gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=7)
register()
"""


@pytest.fixture
def registering_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package that registers an environment in its import, with the entry point that highway-env uses."""
    write_distribution(
        tmp_path, "from-afar", {"gymnasium.envs.__root__": {"afar": "from_afar:register"}}, {"from_afar.py": CODE}
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    registry.import_registrars.cache_clear()
    yield
    gymnasium.registry.pop("FromAfar-v0", None)
    sys.modules.pop("from_afar", None)
    registry.import_registrars.cache_clear()


def test_id_of_a_registering_package_is_found(registering_package: None) -> None:
    assert registry.find("FromAfar-v0").max_episode_steps == 7


def test_registering_package_with_a_failing_import_is_left_out(
    registering_package: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "from_afar.py").write_text("raise OSError('no display')")
    with pytest.raises(registry.UnknownEnv, match="FromAfar-v0"):
        registry.find("FromAfar-v0")
    assert "the environments of 'from_afar' are left out: OSError: no display" in capsys.readouterr().err
