"""A2C of Stable-Baselines3."""

from sb3_common import by_hand, environments, measure, train
from stable_baselines3 import A2C

if __name__ == "__main__":
    setting = measure.settings("a2c")
    model = A2C(
        "MlpPolicy",
        environments(setting),
        learning_rate=setting["lr"],
        n_steps=setting["rollout"],
        gamma=setting["gamma"],
        gae_lambda=setting["gae_lambda"],
        ent_coef=setting["entropy"],
        vf_coef=setting["value"],
        max_grad_norm=setting["clip"],
        rms_prop_eps=setting["rms_epsilon"],
        policy_kwargs={"net_arch": setting["hidden"], **by_hand(setting, adam=False)},
        seed=setting["seed"],
        device="cpu",
    )
    train(setting, model)
