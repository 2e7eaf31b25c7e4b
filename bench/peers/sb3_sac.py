"""SAC of Stable-Baselines3, its temperature learned."""

from sb3_common import environments, measure, replaying, train
from stable_baselines3 import SAC

if __name__ == "__main__":
    setting = measure.settings("sac")
    train(setting, SAC("MlpPolicy", environments(setting), **replaying(setting)))
