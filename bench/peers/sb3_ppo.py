"""PPO of Stable-Baselines3, on CartPole or with `--pair ppo-halfcheetah` or `ppo-pong`."""

from sb3_common import clipping, environments, measure, train
from stable_baselines3 import PPO

if __name__ == "__main__":
    setting = measure.settings("ppo")
    atari = setting.get("atari")
    layers = (
        {} if atari else {"net_arch": setting["hidden"]}
    )  # the other has its 512 behind convolutions
    train(
        setting,
        PPO(
            "CnnPolicy" if atari else "MlpPolicy",
            environments(setting),
            **clipping(setting, **layers),
        ),
    )
