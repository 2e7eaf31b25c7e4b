"""PPO of Stable-Baselines3, on CartPole or with `--pair ppo-halfcheetah` or `ppo-pong`."""

from sb3_common import clipping, environments, measure, train
from stable_baselines3 import PPO

if __name__ == "__main__":
    setting = measure.settings("ppo")
    atari = setting.get("atari")
    # The policy for images has 512 units after its convolutions.
    layers = {} if atari else {"net_arch": setting["hidden"]}
    train(
        setting,
        PPO(
            "CnnPolicy" if atari else "MlpPolicy",
            environments(setting),
            **clipping(setting, **layers),
        ),
    )
