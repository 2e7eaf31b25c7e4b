"""TD3 of Stable-Baselines3, with Gaussian noise on its actions."""

from typing import Any

import numpy as np
from sb3_common import environments, measure, replaying, train
from stable_baselines3 import TD3
from stable_baselines3.common.noise import NormalActionNoise


def make(setting: dict[str, Any]) -> TD3:
    rows = environments(setting)
    zeros = np.zeros(rows.action_space.shape)
    noise = NormalActionNoise(zeros, zeros + setting["noise_sigma"])
    return TD3(
        "MlpPolicy",
        rows,
        action_noise=noise,
        policy_delay=setting["policy_delay"],
        **replaying(setting),
    )


if __name__ == "__main__":
    setting = measure.settings("td3")
    train(setting, make(setting))
