"""A minibatch of PPO and an update of DQN in plain NumPy, written only for these networks; `floor.py` measures them.

Two networks with two layers of tanh or ReLU, and discrete actions: no layer objects, no metrics, and every array is
created once. rlplug is slower than this unless numba compiles its loops.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
import torch

from rlplug_core.types import Array


def shapes_of(inputs: int, outputs: int, width: int) -> list[tuple[int, ...]]:
    return [(width, inputs), (width,), (width, width), (width,), (outputs, width), (outputs,)]


class Flat:
    """Parameters, their gradient and Adam's moments, each as one array."""

    def __init__(self, size: int, learning_rate: float, clip: float) -> None:
        self.tensors = [torch.randn(size) * 0.1, *(torch.zeros(size) for _ in range(3))]
        self.flat, self.gradient = (tensor.numpy() for tensor in self.tensors[:2])
        self.steps = torch.zeros(())
        self.learning_rate = learning_rate
        self.clip = clip

    def step(self) -> None:
        """Clip the gradient, and take torch's fused step."""
        norm = sqrt(self.gradient.dot(self.gradient))
        if norm > self.clip:
            self.gradient *= self.clip / norm
        self.steps += 1
        torch._fused_adam_(
            *([tensor] for tensor in self.tensors),
            [],
            [self.steps],
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self.learning_rate,
            weight_decay=0.0,
            eps=1e-5,
            maximize=False,
        )


class Layers:
    """Two hidden layers and an output on views of flat parameters and of their gradient, with arrays for one batch."""

    def __init__(
        self,
        flat: Array,
        gradient: Array,
        batch: int,
        inputs: int,
        outputs: int,
        width: int = 64,
        relu: bool = False,
    ) -> None:
        shapes = shapes_of(inputs, outputs, width)
        self.relu = relu
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
        views = (
            [part.reshape(shape) for part, shape in zip(np.split(of, ends), shapes, strict=True)]
            for of in (flat, gradient)
        )
        (self.w1, self.b1, self.w2, self.b2, self.w3, self.b3), self.output_gradients = views
        self.first, self.second, self.gradient, self.buffer = (
            np.empty((batch, width), np.float32) for _ in range(4)
        )
        self.zeros = np.zeros((batch, width), np.float32)
        self.out = np.empty((batch, outputs), np.float32)
        self.ones = np.ones(batch, np.float32)

    def forward(self, obs: Array) -> Array:
        for weight, bias, values, into in (
            (self.w1, self.b1, obs, self.first),
            (self.w2, self.b2, self.first, self.second),
        ):
            np.dot(values, weight.T, out=into)
            np.add(into, bias, out=into)
            if self.relu:
                np.maximum(into, self.zeros, out=into)
            else:
                np.tanh(into, out=into)
        np.dot(self.second, self.w3.T, out=self.out)
        self.out += self.b3
        return self.out

    def backward(self, obs: Array, d: Array) -> None:
        g1, h1, g2, h2, g3, h3 = self.output_gradients
        np.dot(d.T, self.second, out=g3)
        np.dot(self.ones, d, out=h3)
        np.dot(d, self.w3, out=self.gradient)
        for weight, bias, values, below, then in (
            (g2, h2, self.second, self.first, self.w2),
            (g1, h1, self.first, obs, None),
        ):
            if self.relu:
                np.multiply(self.gradient, values > self.zeros, out=self.gradient)
            else:
                np.multiply(values, values, out=self.buffer)
                np.subtract(1, self.buffer, out=self.buffer)
                np.multiply(self.gradient, self.buffer, out=self.gradient)
            np.dot(self.gradient.T, below, out=weight)
            np.dot(self.ones, self.gradient, out=bias)
            if then is not None:
                np.dot(self.gradient, then, out=self.buffer)
                self.gradient, self.buffer = self.buffer, self.gradient


class Minibatch:
    """Forward, clipped surrogate and squared error, backward, gradient clipping, torch's fused Adam."""

    def __init__(
        self, obs: Array, action: Array, advantage: Array, target: Array, old: Array, actions: int
    ) -> None:
        batch, inputs = obs.shape
        sizes = [
            sum(int(np.prod(shape)) for shape in shapes_of(inputs, n, 64)) for n in (actions, 1)
        ]
        self.all = Flat(sum(sizes), 3e-4, 0.5)
        parts = zip(
            np.split(self.all.flat, sizes[:1]),
            np.split(self.all.gradient, sizes[:1]),
            (actions, 1),
            strict=True,
        )
        self.policy, self.critic = (
            Layers(*part, batch=batch, inputs=inputs, outputs=n) for *part, n in parts
        )
        self.given = obs, action, advantage, target, old
        self.rows = np.arange(batch)
        self.each = np.ones(actions, np.float32)
        self.share = np.float32(1 / batch)

    def __call__(self) -> None:
        obs, action, advantage, target, old = self.given
        advantage = advantage - advantage.dot(self.policy.ones) * self.share
        advantage /= sqrt(advantage.dot(advantage) / (len(obs) - 1)) + 1e-8
        logits = self.policy.forward(obs)
        value = self.critic.forward(obs)[:, 0]
        shifted = logits - np.maximum.reduce(np.ascontiguousarray(logits.T))[:, None]
        shares = np.exp(shifted)
        total = shares.dot(self.each)
        shares /= total[:, None]
        ratio = np.exp(shifted[self.rows, action] - np.log(total) - old)
        full = ratio * advantage
        cut = np.minimum(np.maximum(ratio, 0.8), 1.2) * advantage
        by_log_prob = full * (full <= cut) * self.share
        shares *= by_log_prob[:, None]
        shares[self.rows, action] -= by_log_prob
        self.policy.backward(obs, shares)
        self.critic.backward(obs, ((value - target) * self.share)[:, None])
        self.all.step()


class Update:
    """DQN: both networks forward, gradient of the Huber loss, backward, gradient clipping, torch's fused Adam."""

    def __init__(
        self, obs: Array, next_obs: Array, action: Array, reward: Array, actions: int
    ) -> None:
        batch, inputs = obs.shape
        width = 256
        size = sum(int(np.prod(shape)) for shape in shapes_of(inputs, actions, width))
        self.all = Flat(size, 5e-4, 10.0)
        other = Flat(size, 0.0, 10.0)
        self.online, self.target = (
            Layers(flat.flat, flat.gradient, batch, inputs, actions, width, relu=True)
            for flat in (self.all, other)
        )
        self.given = (obs, next_obs, action, reward)
        self.rows = np.arange(batch)
        self.output_gradients = np.zeros((batch, actions), np.float32)
        self.share = np.float32(1 / batch)

    def __call__(self) -> None:
        obs, next_obs, action, reward = self.given
        aim = reward + np.float32(0.99) * np.maximum.reduce(self.target.forward(next_obs), 1)
        error = self.online.forward(obs)[self.rows, action] - aim
        self.output_gradients.fill(0)
        self.output_gradients[self.rows, action] = np.minimum(np.maximum(error, -1), 1) * self.share
        self.online.backward(obs, self.output_gradients)
        self.all.step()
