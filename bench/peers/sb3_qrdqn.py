"""QR-DQN of sb3-contrib."""

from sb3_common import by_hand, environments, measure, train
from sb3_contrib import QRDQN

if __name__ == "__main__":
    setting = measure.settings("qrdqn")
    model = QRDQN(
        "MlpPolicy",
        environments(setting),
        learning_rate=setting["lr"],
        buffer_size=setting["replay"],
        learning_starts=setting["learning_starts"],
        batch_size=setting["batch"],
        gamma=setting["gamma"],
        train_freq=setting["every"],
        gradient_steps=setting["gradient_steps"],
        target_update_interval=setting["target_every"],
        exploration_fraction=setting["exploration_fraction"],
        exploration_final_eps=setting["exploration_final"],
        max_grad_norm=setting["clip"],
        policy_kwargs={"n_quantiles": setting["quantiles"], "net_arch": setting["hidden"], **by_hand(setting)},
        seed=setting["seed"],
        device="cpu",
    )
    train(setting, model)
