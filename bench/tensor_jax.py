"""PPO in JAX for `bench/tensor.py`: rollout and update in one `jit` on gymnax, as in PureJaxRL (Lu et al., 2022)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensor_peers import CLIP, ENTROPY, EPOCHS, GAMMA, LAMBDA, PARTS, RATE, ROLLOUT


def layers(key: Any, sizes: tuple[int, ...]) -> list[Any]:
    """Return weights and biases of fully connected layers."""
    import jax
    import jax.numpy as jnp

    keys = jax.random.split(key, len(sizes))
    pairs = zip(keys, sizes[:-1], sizes[1:], strict=False)
    return [(jax.random.normal(one, (a, b)) / a**0.5, jnp.zeros(b)) for one, a, b in pairs]


def forward(net: Any, x: Any) -> Any:
    """Return outputs [B, K] of layers with tanh in between."""
    import jax.numpy as jnp

    for weight, bias in net[:-1]:
        x = jnp.tanh(x @ weight + bias)
    return x @ net[-1][0] + net[-1][1]


def loss(nets: Any, part: Any) -> Any:
    """Return PPO's loss of a minibatch."""
    import jax
    import jax.numpy as jnp

    obs, action, before, advantage, target = part
    logits = jax.nn.log_softmax(forward(nets[0], obs))
    log_prob = jnp.take_along_axis(logits, action[:, None], 1)[:, 0]
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    ratio = jnp.exp(log_prob - before)
    gain = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantage)
    entropy = -(jnp.exp(logits) * logits).sum(1).mean()
    error = jnp.square(forward(nets[1], obs)[:, 0] - target).mean()
    return -gain.mean() + 0.5 * error - ENTROPY * entropy


def adam(carry: Any, part: Any) -> Any:
    """Take a step of Adam on a minibatch."""
    import jax
    import jax.numpy as jnp

    nets, mean, square, count = carry
    gradient = jax.grad(loss)(nets, part)
    tree = jax.tree.map
    mean = tree(lambda m, g: 0.9 * m + 0.1 * g, mean, gradient)
    square = tree(lambda v, g: 0.999 * v + 0.001 * g * g, square, gradient)
    a = 1 - 0.9 ** (count + 1)
    b = 1 - 0.999 ** (count + 1)
    count = count + 1
    nets = tree(lambda p, m, v: p - RATE * m / a / (jnp.sqrt(v / b) + 1e-5), nets, mean, square)
    return (nets, mean, square, count), None


def estimate(carry: Any, row: Any) -> Any:
    """Take a step of generalized advantage estimation, from the last step of a rollout to the first."""
    advantage, after = carry
    value, reward, done = row
    error = reward + GAMMA * after * (1 - done) - value
    advantage = error + GAMMA * LAMBDA * (1 - done) * advantage
    return (advantage, value), advantage


def learn(learner: Any, steps: Any, last: Any, key: Any) -> Any:
    """Return the learner after the epochs of a rollout; `last` [N] are values of the last observations."""
    import jax
    import jax.numpy as jnp

    columns = (steps[3], steps[4], steps[5].astype(jnp.float32))
    start = (jnp.zeros_like(last), last)
    _, advantage = jax.lax.scan(estimate, start, columns, reverse=True)
    data = (*steps[:3], advantage, advantage + steps[3])
    flat = [part.reshape(-1, *part.shape[2:]) for part in data]

    def epoch(learner: Any, key: Any) -> Any:
        order = jax.random.permutation(key, len(flat[0])).reshape(PARTS, -1)
        return jax.lax.scan(adam, learner, [part[order] for part in flat])

    learner, _ = jax.lax.scan(epoch, learner, jax.random.split(key, EPOCHS))
    return learner


def jax_ppo(rows: int) -> Callable[[], int]:
    """One rollout and update in one `jit`."""
    import gymnax
    import jax
    import jax.numpy as jnp

    env, settings = gymnax.make("CartPole-v1")

    def act(carry: Any, key: Any) -> Any:
        nets, obs, state = carry
        keys = jax.random.split(key, rows + 1)
        logits = jax.nn.log_softmax(forward(nets[0], obs))
        action = jax.random.categorical(keys[0], logits)
        log_prob = jnp.take_along_axis(logits, action[:, None], 1)[:, 0]
        value = forward(nets[1], obs)[:, 0]
        step = jax.vmap(env.step, (0, 0, 0, None))
        after, state, reward, done, _ = step(keys[1:], state, action, settings)
        return (nets, after, state), (obs, action, log_prob, value, reward, done)

    @jax.jit
    def update(learner: Any, obs: Any, state: Any, key: Any) -> Any:
        key, acting, shuffling = jax.random.split(key, 3)
        keys = jax.random.split(acting, ROLLOUT)
        (_, obs, state), steps = jax.lax.scan(act, (learner[0], obs, state), keys)
        last = forward(learner[0][1], obs)[:, 0]
        return learn(learner, steps, last, shuffling), obs, state, key

    key = jax.random.PRNGKey(0)
    nets = [layers(key, (4, 64, 64, 2)), layers(key, (4, 64, 64, 1))]
    zeros = jax.tree.map(jnp.zeros_like, nets)
    obs, state = jax.vmap(env.reset, (0, None))(jax.random.split(key, rows), settings)
    now = ((nets, zeros, zeros, jnp.zeros(())), obs, state, key)

    def run() -> int:
        nonlocal now
        now = jax.block_until_ready(update(*now))
        return ROLLOUT * rows

    return run
