"""Imported policies of Stable-Baselines3 act like their models, and hostile files execute nothing."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from rlplug_core import load
from rlplug_core.errors import UsageError
from rlplug_core.export.inert_pickle import Record, array_of, read_pickle
from rlplug_core.runs import Run, import_sb3
from tests.core.export.sb3_envs import observations
from tests.core.harmful import Bomb
from tests.tables import for_each

HERE = Path(__file__).parent / "sb3"
#: Environments of `make_sb3.py`, which needs Stable-Baselines3.
ENVS = {
    "ppo-cartpole": "CartPole-v1",
    "ppo-pendulum": "Pendulum-v1",
    "a2c-acrobot": "Acrobot-v1",
    "a2c-taxi": "CliffWalking-v1",
    "dqn-cartpole": "CartPole-v1",
    "sac-pendulum": "Pendulum-v1",
    "td3-pendulum": "Pendulum-v1",
    "ddpg-mountaincar": "MountainCarContinuous-v0",
}
#: Policies for images and dictionaries.
OTHERS = {
    "ppo-pictures": f"{HERE.parent}/sb3_envs.py:Pictures",
    "dqn-pictures": f"{HERE.parent}/sb3_envs.py:Pictures",
    "sac-parts": f"{HERE.parent}/sb3_envs.py:Parts",
}
#: Models with a file of `VecNormalize`.
NORMALIZED = {"a2c-places": f"{HERE.parent}/sb3_envs.py:Places", "ppo-normalized": "Pendulum-v1"}


@for_each("name, env", [*ENVS.items(), *OTHERS.items(), *NORMALIZED.items()])
def test_imported_policy_has_the_actions_of_its_model(tmp_path: Path, name: str, env: str) -> None:
    """The two libraries round continuous actions differently."""
    statistics = HERE / f"{name}.pkl" if name in NORMALIZED else None
    policy = load(import_sb3(HERE / f"{name}.zip", env, tmp_path / name, statistics))
    expected = np.load(HERE / f"{name}.npy")
    obs = observations(policy.observation_space)
    assert len(expected) == 1000
    if name.endswith("pictures"):  # convolutions are slow
        obs, expected = obs[:200], expected[:200]
    actions = policy(obs)
    assert len(np.unique(expected)) > 1  # a constant policy would prove nothing
    if expected.dtype.kind == "i":
        np.testing.assert_array_equal(actions, expected)
    else:
        np.testing.assert_allclose(actions, expected, rtol=0, atol=2e-6)


def test_imported_policy_can_be_evaluated(tmp_path: Path) -> None:
    run = Run(import_sb3(HERE / "ppo-cartpole.zip", "CartPole-v1", tmp_path / "policy"))
    assert run.evaluate(3).episodes == 3


def test_other_environments_and_missing_files_raise(tmp_path: Path) -> None:
    for env, words in (("Acrobot-v1", "4 numbers for observations"), ("Pendulum-v1", "4 numbers for observations")):
        with pytest.raises(UsageError, match=words):
            import_sb3(HERE / "ppo-cartpole.zip", env, tmp_path / "policy")
    with pytest.raises(UsageError, match=r"there is no file .*none\.zip"):
        import_sb3(tmp_path / "none.zip", "CartPole-v1", tmp_path / "policy")
    assert not (tmp_path / "policy").exists()


def copy_with(path: Path, **parts: bytes) -> Path:
    """Copy a model with other parts; an empty part is left out."""
    with zipfile.ZipFile(HERE / "ppo-cartpole.zip") as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            if parts.get(name) != b"":
                new.writestr(name, parts.get(name, old.read(name)))
    return path


def test_hostile_models_raise_and_execute_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile(HERE / "ppo-cartpole.zip") as model:
        data = json.loads(model.read("data"))
        weights = torch.load(io.BytesIO(model.read("policy.pth")), weights_only=True)
    bomb = io.BytesIO()
    torch.save({"action_net.weight": Bomb()}, bomb)
    cnn = io.BytesIO()
    torch.save({**weights, "features_extractor.cnn.0.weight": torch.zeros(1)}, cnn)
    extractor = io.BytesIO()
    torch.save({**weights, "features_extractor.mine.weight": torch.zeros(1)}, extractor)
    less = io.BytesIO()
    torch.save({name: value for name, value in weights.items() if "action_net" not in name}, less)
    own = {**data, "policy_class": {"__module__": "evil"}}
    swish = {**data, "policy_kwargs": {"activation_fn": "<class 'evil.Swish'>"}}
    cases = {
        "a pickle instead of weights": ({"policy.pth": pickle.dumps(Bomb())}, "cannot be read"),
        "a pickle among the weights": ({"policy.pth": bomb.getvalue()}, "cannot be read"),
        "a pickle in the data": ({"data": pickle.dumps(Bomb())}, "cannot be read"),
        "no weights": ({"policy.pth": b""}, "cannot be read"),
        "no data": ({"data": b""}, "cannot be read"),
        "deeply nested data": ({"data": b"[" * 100_000}, "cannot be read"),
        "a list as data": ({"data": b"[]"}, "other types"),
        "one convolution": ({"policy.pth": cnn.getvalue()}, "convolutions"),
        "a custom extractor": ({"policy.pth": extractor.getvalue()}, "features_extractor.mine"),
        "a missing layer": ({"policy.pth": less.getvalue()}, "no layer action_net"),
        "a custom class": ({"data": json.dumps(own).encode()}, "policies of Stable-Baselines3"),
        "an unknown activation": ({"data": json.dumps(swish).encode()}, "activation Swish"),
    }
    for name, (parts, words) in cases.items():
        with pytest.raises(UsageError) as caught:
            import_sb3(copy_with(tmp_path / "model.zip", **parts), "CartPole-v1", tmp_path / "policy")
        message = str(caught.value)
        assert words in message, (name, message)
        assert message.isprintable(), (name, message)
    (tmp_path / "text.zip").write_text("no archive")
    with pytest.raises(UsageError, match="cannot be read"):
        import_sb3(tmp_path / "text.zip", "CartPole-v1", tmp_path / "policy")
    assert not (tmp_path / "executed").exists()
    assert not (tmp_path / "policy").exists()


def test_hostile_statistics_raise_and_execute_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    statistics = (HERE / "ppo-normalized.pkl").read_bytes()
    cases = {
        "a bomb": (pickle.dumps(Bomb()), "no VecNormalize"),
        "an old bomb": (b"cos\nsystem\n(S'touch executed'\ntR.", "instruction GLOBAL"),
        "a bomb in its state": (statistics[:-2] + pickle.dumps({"clip_obs": Bomb()})[2:-1] + b"ub.", ""),
        "half a file": (statistics[: len(statistics) // 2], ""),
        "text": (b"no pickle", ""),
        "an empty file": (b"", ""),
        "endless lists": (b"\x80\x04" + b"]" * 2_000_000 + b".", "instructions"),
        # Its hash would take 2^64 steps.
        "a key of nested tuples": (
            b"\x80\x04})" + b"".join(b"\x94h%c\x86" % place for place in range(64)) + b"Ns.",
            "no VecNormalize",
        ),
        "a huge length": (b"\x80\x05\x96" + b"\xff" * 7 + b"\x00.", ""),
        "other numbers": (statistics.replace(b"f8", b"O8"), "floats"),
        "an infinite mean": (_with_mean(statistics, np.inf), "do not fit"),
        "another environment": ((HERE / "a2c-places.pkl").read_bytes(), "other observations"),
    }
    for name, (content, words) in cases.items():
        (tmp_path / "statistics.pkl").write_bytes(content)
        with pytest.raises(UsageError) as caught:
            import_sb3(HERE / "ppo-normalized.zip", "Pendulum-v1", tmp_path / "policy", "statistics.pkl")
        message = str(caught.value)
        assert words in message, (name, message)
        assert message.isprintable(), (name, message)
    assert not (tmp_path / "executed").exists()
    assert not (tmp_path / "policy").exists()


def test_array_of_a_hostile_file_takes_no_memory() -> None:
    kind = Record("numpy.dtype", ("f8",), (3, "<"))
    with pytest.raises(ValueError, match="no data"):
        array_of(Record("numpy._core.numeric._frombuffer", (10**12, kind, (1,), "C")))


def _with_mean(data: bytes, value: float) -> bytes:
    """Return the file with another mean of the first observation."""
    mean = array_of(read_pickle(data).state["obs_rms"].state["mean"])
    return data.replace(mean[:1].tobytes(), np.array([value]).tobytes())
