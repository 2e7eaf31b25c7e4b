"""`DeviceStep`: an optimizer's step that consists of kernels only, so that a CUDA graph can hold it."""

from __future__ import annotations

import torch
from torch import Tensor

from rlplug_core.clock import Clock
from rlplug_core.errors import NonFinite
from rlplug_core.fast.cuda.graphs import Graphs
from rlplug_core.learning.deferred_nan_check import DeferredNanCheck
from rlplug_core.learning.optimizer import Optimizer

#: Steps between checks of losses and gradients: starting the copy of two numbers takes as long as a graph.
CHECK_EVERY = 32


class DeviceStep:
    """Takes an optimizer's steps with every changing number on the device, by replay if they are recorded.

    The same kernels run with and without a graph, so a resumed run, which starts without graphs, has the same bits.
    """

    def __init__(self, optimizer: Optimizer, graphs: Graphs) -> None:
        self.optimizer = optimizer
        self.graphs = graphs
        self.check = DeferredNanCheck(self._check, f"within the last {2 * CHECK_EVERY} steps")
        graphs.failed_optimizers.append(self.name_if_failed)
        #: The sums of norms and losses, which stay infinite or NaN, and the number of steps since the last check.
        self.sums = torch.zeros(2, device=optimizer.flat.device)
        self.unchecked = 0
        #: The learning rate and the largest norm, as last written to the device.
        self.values = [float("nan")] * 2
        self.rate, self.clip = torch.full((2,), float("nan"), device=optimizer.flat.device).unbind()

    def __call__(self, loss: Tensor, clock: Clock) -> Tensor:
        """Take the step of a loss []; return the norm [] of its gradient before clipping."""
        optimizer = self.optimizer
        self._set(self.rate, 0, optimizer.rate * clock.scale)
        if optimizer.clip is not None:
            self._set(self.clip, 1, optimizer.clip)
        step = self.graphs.step_of(loss, optimizer)
        norm = self.kernels(loss) if step is None else step.minimize(self.kernels)
        self.unchecked += 1
        if self.unchecked == CHECK_EVERY:
            self.send()
        return norm

    def send(self) -> None:
        """Check the previous sums, and send the current ones for the next check."""
        self.check.send(self.sums, self.optimizer.name)
        self.unchecked = 0

    def reset(self) -> None:
        """Start again, after parameters were loaded."""
        self.sums.zero_()
        self.unchecked = 0
        self.check.sent = None

    def look(self) -> None:
        """Check all steps.

        Raises:
            NonFinite: a loss or a gradient was not finite.
        """
        if self.unchecked:
            self.send()
        self.check.look(f"within the last {CHECK_EVERY} steps")

    def _set(self, number: Tensor, place: int, value: float) -> None:
        if self.values[place] != value:
            number.fill_(value)
            self.values[place] = value

    def kernels(self, loss: Tensor) -> Tensor:
        """Take the step without reading a number; return the norm [] of the gradient before clipping."""
        optimizer = self.optimizer
        wanted = [each for each in optimizer.parameters if each.requires_grad]
        gradients = iter(torch.autograd.grad(loss, wanted, materialize_grads=True))
        all_gradients = [
            next(gradients) if each.requires_grad else torch.zeros_like(each)
            for each in optimizer.parameters
        ]
        torch.cat([each.reshape(-1) for each in all_gradients], out=optimizer.gradient)
        for part in optimizer.frozen:
            optimizer.gradient[part] = 0
        norm: Tensor = torch.linalg.vector_norm(optimizer.gradient)
        self.sums.add_(torch.stack([norm, loss.detach()]))
        if optimizer.clip is not None:
            optimizer.gradient.mul_((self.clip / (norm + 1e-6)).clamp_(max=1.0))
        if optimizer.frozen or optimizer.undecayed:
            optimizer.step_in_parts(self.rate)
        else:
            optimizer.rule.step(optimizer.target, optimizer.gradient, optimizer.state, self.rate)  # type: ignore[arg-type]
        return norm

    def name_if_failed(self) -> str:
        """Wait for the device; return the name of the optimizer if a sum is not finite, or ""."""
        return "" if torch.isfinite(self.sums).all() else self.optimizer.name

    def _check(self, norm: Tensor, loss: Tensor, when_and_name: str) -> None:
        """Raise `NonFinite` if a sum is not finite; the cause may be the step of another optimizer."""
        if not torch.isfinite(norm + loss):
            when, _, name = when_and_name.rpartition(", ")
            failed = [name_of() for name_of in self.graphs.failed_optimizers]
            names = " and ".join(filter(None, failed)) or name
            raise NonFinite(f"{when}, {names} met a loss or a gradient that is not finite")
