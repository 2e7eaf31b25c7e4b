"""PPO of Stable-Baselines3, on CartPole or with `--pair ppo-halfcheetah` or `ppo-pong`."""

from sb3_common import by_hand, environments, measure, train
from stable_baselines3 import PPO

if __name__ == "__main__":
    setting = measure.settings("ppo")
    layers = (
        {} if setting.get("atari") else {"net_arch": setting["hidden"]}
    )  # the other has its 512 behind convolutions
    model = PPO(
        "CnnPolicy" if setting.get("atari") else "MlpPolicy",
        environments(setting),
        learning_rate=setting["learning_rate"],
        n_steps=setting["n_steps"],
        batch_size=setting["batch_size"],
        n_epochs=setting["n_epochs"],
        gamma=setting["gamma"],
        gae_lambda=setting["gae_lambda"],
        clip_range=setting["clip_range"],
        ent_coef=setting["ent_coef"],
        vf_coef=setting["vf_coef"],
        max_grad_norm=setting["max_grad_norm"],
        policy_kwargs={**layers, **by_hand(setting)},
        seed=setting["seed"],
        device="cpu",
    )
    train(setting, model)
