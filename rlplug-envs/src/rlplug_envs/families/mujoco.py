"""Capture and restore MuJoCo's simulations, because pickle rebuilds them differently; and suppress its warnings.

A step depends on MuJoCo's integration state (positions, velocities, warm start of the solver, time, controls). Rewards
of Ant and Humanoid also read older quantities, derived in the step before, so all arrays are captured.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from rlplug_core.config.import_string import describe
from rlplug_core.errors import MissingPackage, warn
from rlplug_core.types import Array, State

#: The simulation and its model, as `capture` names types.
DATA = "mujoco._structs.MjData"
MODEL = "mujoco._structs.MjModel"
#: It draws pictures and keeps windows open; nothing in it reaches an observation.
RENDERER = "gymnasium.envs.mujoco.mujoco_rendering.MujocoRenderer"
#: Where Gymnasium keeps its own environments on MuJoCo.
MODULE = "gymnasium.envs.mujoco"
#: The camera of Gymnasium's models that walk; models that stay in place have none.
FOLLOWING = "track"
#: Arguments that set the camera.
CAMERAS = {"camera_id", "camera_name", "default_camera_config"}
#: The requirement that installs compatible versions of other packages, by namespace or by package.
COMPATIBLE = {
    "dm_control": "rlplug-envs[dm-control]",
    "gymnasium_robotics": "rlplug-envs[robotics]",
}
#: The variable that chooses the renderer of MuJoCo, and its value for no renderer.
GL = "MUJOCO_GL"
OFF = "disable"
NEEDS = "on Debian egl needs the packages libegl1 and libgl1-mesa-dri, osmesa needs libosmesa6"


def with_camera(
    module: str,
    arguments: Mapping[str, object],
) -> Mapping[str, object]:
    """Return an environment's arguments with a camera that follows a walker, unless one is set.

    Gymnasium's own camera stays at the start of the episode, and a film soon shows an empty floor.
    """
    adds_camera = module.startswith(MODULE) and not CAMERAS & arguments.keys()
    return {**arguments, "camera_name": FOLLOWING} if adds_camera else arguments


def capture_data(data: Any) -> State:
    """Return the integration state of an MjData, and all its arrays of fixed size one after the other, by type."""
    import mujoco

    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    integration = np.empty(mujoco.mj_stateSize(data.model, kind))
    mujoco.mj_getState(data.model, data, integration, kind)
    arrays = [getattr(data, name) for name in _model_arrays(data.model)]
    kinds = sorted({array.dtype.char for array in arrays})
    derived = {
        kind: np.concatenate([array.reshape(-1) for array in arrays if array.dtype.char == kind])
        for kind in kinds
    }
    return {"integration": integration, "derived": derived}


def restore_data(data: Any, state: State) -> None:
    """Put an MjData into a captured state, in place; its model is the captured one's (`fingerprint`)."""
    import mujoco

    mujoco.mj_setState(data.model, data, state["integration"], mujoco.mjtState.mjSTATE_INTEGRATION)
    offsets = dict.fromkeys(state["derived"], 0)
    for name in _model_arrays(data.model):
        array = getattr(data, name)
        kind = array.dtype.char
        start = offsets[array.dtype.char]
        array[...] = state["derived"][kind][start : start + array.size].reshape(array.shape)
        offsets[kind] += array.size


def _model_arrays(model: object) -> list[str]:
    """Return the arrays with sizes fixed by the model: those that are not empty without contacts."""
    import mujoco

    blank = mujoco.MjData(model)
    arrays = {name: getattr(blank, name) for name in dir(blank) if not name.startswith("_")}
    return [name for name, array in arrays.items() if isinstance(array, np.ndarray) and array.size]


def fingerprint(model: object) -> str:
    """Return a digest of an MjModel: if an environment changes its model, its state cannot be restored."""
    import mujoco

    content: Array = np.empty(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, content)
    return hashlib.sha256(content.tobytes()).hexdigest()


def import_mujoco() -> Any:
    """Import MuJoCo; without its renderer if that cannot be loaded: MuJoCo always loads it.

    Raises:
        ModuleNotFoundError: MuJoCo is not installed.
    """
    try:
        import mujoco
    except (AttributeError, OSError, RuntimeError) as error:
        renderer = os.environ.get(GL, "")
        if renderer in ("", OFF):
            raise
        warn(
            f"MuJoCo draws nothing here: {GL}={renderer} does not work ({describe(error)}); {NEEDS}"
        )
        os.environ[GL] = OFF
        import mujoco
    return mujoco


@contextmanager
def quiet_mujoco() -> Iterator[None]:
    """Suppress MuJoCo's warnings about Gymnasium's model files, which users cannot change.

    MuJoCo repeats them for every environment, on the terminal and in a file MUJOCO_LOG.TXT of the working directory.

    Raises:
        ModuleNotFoundError: MuJoCo is not installed.
    """
    mujoco = import_mujoco()

    def forward(text: str) -> None:
        if "deprecated" not in text:
            gymnasium.logger.warn(text)

    previous = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(forward)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(previous)


@contextmanager
def make_unversioned(spec: EnvSpec) -> Iterator[None]:
    """Make an environment of a package that does not say which versions of MuJoCo it runs with.

    Raises:
        MissingPackage: it does not run with this one.
    """
    try:
        yield
    except (AssertionError, AttributeError) as error:
        package = COMPATIBLE.get(spec.namespace or str(spec.entry_point).partition(".")[0])
        if package is None:
            raise
        raise MissingPackage(
            f"'{spec.id}' does not run with MuJoCo {version('mujoco')} ({describe(error)}); "
            f"install versions that go together: python -m pip install '{package}'"
        ) from error
