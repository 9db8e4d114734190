"""(a): PyTorch with torchdiffeq, as these models are usually written there.

`odeint_adjoint` with Dopri5, the state one tensor with h and m along the channels, gradients by the
continuous adjoint whose error control includes the parameters (torchdiffeq's default). Recurrent
models are a Python loop over the stamps; the gaps of the samples scale the rate.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torchdiffeq import odeint_adjoint

from .problems import Problem
from .weights import in_torch_layout, pixels_of


class DenseNet(nn.ModuleList):
    """Linear layers with an activation between them."""

    def __init__(self, sizes, activation):
        super().__init__(nn.Linear(n, m) for n, m in itertools.pairwise(sizes))
        self.activation = activation

    def forward(self, x):
        *hidden, last = self
        for layer in hidden:
            x = self.activation(layer(x))
        return last(x)


class ConvolutionalNet(nn.ModuleList):
    """conv 1×1, conv 3×3, conv 1×1; with `time` it is a further channel before each."""

    def __init__(self, inputs, outputs, width, activation, time):
        sizes = [(inputs, width, 1), (width, width, 3), (width, outputs, 1)]
        super().__init__(nn.Conv2d(n + time, m, k, padding=k // 2) for n, m, k in sizes)
        self.activation, self.time = activation, time

    def layer(self, layer, x, t):
        if self.time:
            x = torch.cat([x, t.expand(x.shape[0], 1, *x.shape[2:])], dim=1)
        return layer(x)

    def forward(self, x, t=None):
        *hidden, last = self
        for layer in hidden:
            x = self.activation(self.layer(layer, x, t))
        return self.layer(last, x, t)


class HeavyBall(nn.Module):
    """h' = m (or tanh m), m' = −γ m + f(t, h) (− ξ h)."""

    def __init__(self, field, gated, timed):
        super().__init__()
        self.field, self.timed = field, timed
        self.omega = nn.Parameter(torch.tensor(0.0))
        self.chi = nn.Parameter(torch.tensor(0.0)) if gated else None
        self.nfe = 0

    def forward(self, t, y):
        self.nfe += 1
        h, m = y.chunk(2, dim=1)
        dm = self.field(h, t) if self.timed else self.field(h)
        dm = dm - torch.sigmoid(self.omega) * m
        dh = m
        if self.chi is not None:
            dm = dm - F.softplus(self.chi) * h
            dh = torch.tanh(m)
        return torch.cat([dh, dm], dim=1)


class Paced(nn.Module):
    """Each sample at the pace of its gap. One object an interval, since the backward solve needs
    the gaps again."""

    def __init__(self, dynamics, gaps):
        super().__init__()
        self.dynamics, self.gaps = dynamics, gaps[:, None]

    def forward(self, t, y):
        return self.gaps * self.dynamics(t, y)


class Base(nn.Module):
    """What all models share: the solve."""

    dynamics: HeavyBall

    def __init__(self, tolerance):
        super().__init__()
        self.tolerance = tolerance

    def integrate(self, dynamics, y0):
        span = torch.tensor([0.0, 1.0], dtype=y0.dtype)
        ys = odeint_adjoint(
            dynamics, y0, span, rtol=self.tolerance, atol=self.tolerance, method="dopri5",
            adjoint_params=tuple(dynamics.parameters()),
        )  # fmt: skip
        return ys[-1]


class PointCloudModel(Base):
    def __init__(self, problem: Problem, shapes):
        super().__init__(problem.tolerance)
        width = shapes["field.0.weight"][0]
        self.start = DenseNet((2, width, width, 2), lambda x: torch.clamp(x, -5.0, 5.0))
        self.dynamics = HeavyBall(DenseNet((2, width, width, 2), F.elu), problem.gated, False)
        self.readout = nn.Linear(2, 1)

    def loss(self, batch):
        points, targets = batch
        y = self.integrate(self.dynamics, torch.cat([points, self.start(points)], dim=1))
        outputs = torch.tanh(self.readout(y[:, :2]))[:, 0]
        return torch.mean((outputs - targets) ** 2)


class ImageModel(Base):
    def __init__(self, problem: Problem, shapes):
        super().__init__(problem.tolerance)
        n, width = shapes["field.2.weight"][0], shapes["field.0.weight"][0]
        channels = shapes["start.0.weight"][1]
        leaky = lambda x: F.leaky_relu(x, 0.3)  # noqa: E731
        self.n, self.channels = n, channels
        self.start = ConvolutionalNet(channels, 2 * n - channels, width, leaky, False)
        field = ConvolutionalNet(n, n, width, F.relu, True)
        self.dynamics = HeavyBall(field, problem.gated, True)
        self.readout = nn.Linear(shapes["readout.weight"][1], shapes["readout.weight"][0])

    def loss(self, batch):
        images, labels = batch
        y = self.integrate(self.dynamics, torch.cat([images, self.start(images)], dim=1))
        return F.cross_entropy(self.readout(y[:, : self.n].flatten(1)), labels)


class ClippedAdjoint(torch.autograd.Function):
    """The state; the adjoint of each sample is cut to an ℓ2 norm of `limit`."""

    @staticmethod
    def forward(ctx, y, limit):
        ctx.limit = limit
        return y.view_as(y)

    @staticmethod
    def backward(ctx, grad):
        norm = torch.linalg.vector_norm(grad, dim=1, keepdim=True)
        return grad * (ctx.limit / norm.clamp(min=ctx.limit)), None


class Recurrent(Base):
    """A Python loop over the stamps."""

    def __init__(self, problem: Problem, shapes):
        super().__init__(problem.tolerance)
        self.clip = problem.model.clip
        self.n = shapes["readout.weight"][1]
        self.readout = nn.Linear(self.n, shapes["readout.weight"][0])

    def cross(self, y, gap):
        return self.integrate(Paced(self.dynamics, gap), y)

    def run(self, y, inputs, gaps):
        outputs = []
        for i in range(inputs.shape[1]):
            y = ClippedAdjoint.apply(y, self.clip)
            y = self.cross(self.step(y, inputs[:, i]), gaps[:, i])
            outputs.append(self.readout(y[:, : self.n]))
        return torch.stack(outputs, dim=1), y

    def step(self, y, x):
        raise NotImplementedError


class PlaneVibrationModel(Recurrent):
    def __init__(self, problem: Problem, shapes):
        super().__init__(problem, shapes)
        self.penalty = problem.task.penalty
        sizes = (self.n, *(shapes[f"field.{i}.weight"][0] for i in range(3)))
        self.dynamics = HeavyBall(DenseNet(sizes, F.relu), problem.gated, False)
        self.start = nn.Linear(shapes["start.weight"][1], 2 * self.n)
        self.cell = nn.ModuleDict({
            "of_input": nn.Linear(shapes["cell.of_input.weight"][1], 2 * self.n),
            "of_h": nn.Linear(self.n, 2 * self.n),
            "of_m": nn.Linear(self.n, 2 * self.n),
        })  # fmt: skip

    def step(self, y, x):
        h, m = y.chunk(2, dim=1)
        return self.cell["of_input"](x) + self.cell["of_h"](h) + self.cell["of_m"](m)

    def loss(self, batch):
        inputs = batch["inputs"]
        outputs, y = self.run(self.start(inputs.flatten(1)), inputs, batch["gaps"])
        forecasts = [outputs[:, -1]]
        for gap in batch["horizons"].diff(dim=1).unbind(1):
            y = self.cross(y, gap)
            forecasts.append(self.readout(y[:, : self.n]))
        forecast = torch.mean((torch.stack(forecasts, dim=1) - batch["forecast"]) ** 2)
        return forecast + self.penalty * torch.mean((outputs - batch["targets"]) ** 2)


class Walker2DModel(Recurrent):
    def __init__(self, problem: Problem, shapes):
        super().__init__(problem, shapes)
        self.dynamics = HeavyBall(DenseNet((self.n, self.n), F.relu), problem.gated, False)
        first = shapes["cell.0.weight"][1]
        sizes = (first, *(shapes[f"cell.{i}.weight"][0] for i in range(3)))
        self.cell = DenseNet(sizes, torch.tanh)

    def step(self, y, x):
        return y + self.cell(torch.cat([y, x], dim=1))

    def loss(self, batch):
        inputs = batch["inputs"]
        y = inputs.new_zeros(inputs.shape[0], 2 * self.n)
        outputs, _ = self.run(y, inputs, batch["gaps"])
        return torch.mean((outputs - batch["targets"]) ** 2)


MODELS = {
    "point-cloud": PointCloudModel,
    "plane-vibration": PlaneVibrationModel,
    "walker2d": Walker2DModel,
    "mnist": ImageModel,
    "cifar10": ImageModel,
}


class TorchUpdate:
    """The update of a problem."""

    def __init__(self, problem: Problem):
        weights = in_torch_layout(problem.model, pixels_of(problem.batch))
        self.weights = {
            _torch_name(name): torch.from_numpy(np.array(x)) for name, x in weights.items()
        }
        shapes = {name: x.shape for name, x in weights.items()}
        dtype = torch.float64 if problem.dtype == np.float64 else torch.float32
        self.model = MODELS[problem.name](problem, shapes).to(dtype)
        self.batch = _tensors(problem.batch)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=problem.learning_rate)
        self.nfe = (0, 0)
        self.reset()

    def reset(self) -> None:
        """Back to the weights of the problem."""
        self.model.load_state_dict(self.weights)

    def __call__(self) -> float:
        dynamics = self.model.dynamics
        dynamics.nfe = 0
        self.optimiser.zero_grad()
        loss = self.model.loss(self.batch)
        forward, dynamics.nfe = dynamics.nfe, 0
        loss.backward()
        self.nfe = forward, dynamics.nfe
        self.optimiser.step()
        return loss.item()

    def gradient(self) -> dict[str, np.ndarray]:
        """Of the last update, by the names of `in_torch_layout`."""
        return {
            name.removeprefix("dynamics."): p.grad.numpy().copy()
            for name, p in self.model.named_parameters()
            if p.grad is not None
        }


def _torch_name(name: str) -> str:
    of_dynamics = name.split(".")[0] in ("field", "omega", "chi")
    return f"dynamics.{name}" if of_dynamics else name


def _tensors(batch: Any) -> Any:
    if isinstance(batch, dict):
        return {name: torch.from_numpy(np.array(x)) for name, x in batch.items()}
    x, target = (np.array(part) for part in batch)
    if x.ndim == 4:
        return torch.from_numpy(x.transpose(0, 3, 1, 2).copy()), torch.from_numpy(target).long()
    return torch.from_numpy(x), torch.from_numpy(target)
