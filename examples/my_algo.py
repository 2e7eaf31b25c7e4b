"""Advantage actor-critic: generalized advantage estimation, an entropy bonus, one gradient step per rollout."""

from dataclasses import dataclass

import rlplug_core as rl


@dataclass(frozen=True)
class MyConfig(rl.Config):
    n_steps: rl.Count = 32  # length of a rollout in each environment
    learning_rate: rl.Scheduled[rl.Positive] = 2e-3  # learning rate; falls to 0 over the run
    ent_coef: rl.Scheduled[rl.NonNegative] = 0.01  # weight of the entropy bonus
    net: rl.Net = rl.Net()


class MyAlgo(rl.Algorithm):
    Config = MyConfig
    runners = ("sync", "async")

    def build(self):
        self.policy = rl.PolicyNetwork(self.spec, self.config.net)
        self.critic = rl.Critic(self.spec, self.config.net)
        learning_rate = self.schedule("learning_rate", anneal=True)
        self.adam = self.optimizer(
            "adam", [self.policy, self.critic], learning_rate=learning_rate, max_grad_norm=0.5
        )
        self.predict_value = rl.fast_forward(self.critic, self.inference_backend)

    def agent(self, rank=0, ranks=1):
        return rl.PolicyAgent(self.policy, self.agent_seeds(rank), self.inference_backend)

    def buffer(self):
        return rl.RolloutBuffer(self.config.n_steps)

    def learn(self, batch, now, clock):
        advantage, target = rl.gae(batch, *batch.values(self.predict_value), 0.99, 0.95)
        loss, metrics = self.loss(batch.samples(advantage, target, self.device), now)
        self.adam.minimize(loss, clock)
        return rl.Result(metrics)

    def loss(self, batch, now):
        log_prob, entropy = self.policy.head.log_prob_and_entropy(
            self.policy(batch.obs), batch.action
        )
        policy_loss = -log_prob * batch.advantage
        value_loss = (self.critic(batch.obs) - batch.target).square()
        loss = batch.mean(policy_loss + 0.5 * value_loss - now.ent_coef * entropy)
        return loss, {
            "loss/policy": batch.mean(policy_loss.detach()),
            "loss/value": batch.mean(value_loss.detach()),
        }
