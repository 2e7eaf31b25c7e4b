"""QR-DQN of sb3-contrib."""

from sb3_common import environments, measure, train, valuing
from sb3_contrib import QRDQN

if __name__ == "__main__":
    setting = measure.settings("qrdqn")
    train(
        setting,
        QRDQN(
            "MlpPolicy",
            environments(setting),
            **valuing(setting, n_quantiles=setting["n_quantiles"]),
        ),
    )
