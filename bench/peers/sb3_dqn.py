"""DQN of Stable-Baselines3."""

from sb3_common import environments, measure, train, valuing
from stable_baselines3 import DQN

if __name__ == "__main__":
    setting = measure.settings("dqn")
    train(setting, DQN("MlpPolicy", environments(setting), **valuing(setting)))
