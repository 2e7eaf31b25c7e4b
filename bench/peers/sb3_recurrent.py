"""PPO of sb3-contrib with an LSTM that policy and critic share, as in rlplug."""

from sb3_common import clipping, environments, measure, train
from sb3_contrib import RecurrentPPO

if __name__ == "__main__":
    setting = measure.settings("ppo-recurrent")
    # Policy and critic have one layer each after the LSTM; rlplug has two layers before it.
    layer = setting["hidden"][:1]
    memory = {
        "net_arch": {"pi": layer, "vf": layer},
        "lstm_hidden_size": setting["units"],
        "shared_lstm": True,
        "enable_critic_lstm": False,
    }
    train(
        setting, RecurrentPPO("MlpLstmPolicy", environments(setting), **clipping(setting, **memory))
    )
