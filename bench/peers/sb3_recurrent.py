"""PPO with an LSTM of sb3-contrib, which policy and critic share as they do in rlplug."""

from sb3_common import clipping, environments, measure, train
from sb3_contrib import RecurrentPPO

if __name__ == "__main__":
    setting = measure.settings("ppo-recurrent")
    one = setting["hidden"][
        :1
    ]  # a layer in front of the LSTM's outputs for each, where rlplug has two before it
    memory = {
        "net_arch": {"pi": one, "vf": one},
        "lstm_hidden_size": setting["units"],
        "shared_lstm": True,
        "enable_critic_lstm": False,
    }
    train(
        setting, RecurrentPPO("MlpLstmPolicy", environments(setting), **clipping(setting, **memory))
    )
