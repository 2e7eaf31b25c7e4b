"""SAC of Stable-Baselines3 with a learned temperature."""

from typing import Any

from sb3_common import environments, measure, replaying, train
from stable_baselines3 import SAC


def make(setting: dict[str, Any]) -> SAC:
    return SAC("MlpPolicy", environments(setting), **replaying(setting))


if __name__ == "__main__":
    setting = measure.settings("sac")
    train(setting, make(setting))
