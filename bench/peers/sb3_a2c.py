"""A2C of Stable-Baselines3."""

from sb3_common import by_hand, environments, measure, train
from stable_baselines3 import A2C

if __name__ == "__main__":
    setting = measure.settings("a2c")
    model = A2C(
        "MlpPolicy",
        environments(setting),
        learning_rate=setting["learning_rate"],
        n_steps=setting["n_steps"],
        gamma=setting["gamma"],
        gae_lambda=setting["gae_lambda"],
        ent_coef=setting["ent_coef"],
        vf_coef=setting["vf_coef"],
        max_grad_norm=setting["max_grad_norm"],
        rms_prop_eps=setting["rms_epsilon"],
        policy_kwargs={"net_arch": setting["hidden"], **by_hand(setting, adam=False)},
        seed=setting["seed"],
        device="cpu",
    )
    train(setting, model)
