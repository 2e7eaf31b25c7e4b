"""PPO of Stable-Baselines3, on CartPole or with `--pair ppo-halfcheetah`."""

from sb3_common import by_hand, environments, measure, train
from stable_baselines3 import PPO

if __name__ == "__main__":
    setting = measure.settings("ppo")
    model = PPO(
        "MlpPolicy",
        environments(setting),
        learning_rate=setting["lr"],
        n_steps=setting["rollout"],
        batch_size=setting["batch"],
        n_epochs=setting["epochs"],
        gamma=setting["gamma"],
        gae_lambda=setting["gae_lambda"],
        clip_range=setting["ratio_clip"],
        ent_coef=setting["entropy"],
        vf_coef=setting["value"],
        max_grad_norm=setting["clip"],
        policy_kwargs={"net_arch": setting["hidden"], **by_hand(setting)},
        seed=setting["seed"],
        device="cpu",
    )
    train(setting, model)
