"""(b): plain diffrax, as a JAX user writes it.

`diffeqsolve` with Dopri5, PIDController and RecursiveCheckpointAdjoint, the state a pair (h, m);
recurrent models are a `lax.scan` over the stamps with a solve inside. Weights are a dict of arrays.
"""

from __future__ import annotations

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import optax

from .problems import Problem
from .weights import in_torch_layout, pixels_of


def linear(weights, name, x):
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def dense(weights, name, x, activation):
    for i in range(2):
        x = activation(linear(weights, f"{name}.{i}", x))
    return linear(weights, f"{name}.2", x)


def convolution(weights, name, x, t=None):
    """On (batch, channel, height, width); with `t` the time is a further channel."""
    if t is not None:
        time = jnp.broadcast_to(t, (x.shape[0], 1, *x.shape[2:])).astype(x.dtype)
        x = jnp.concatenate([x, time], axis=1)
    y = jax.lax.conv_general_dilated(
        x, weights[f"{name}.weight"], (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW")
    )
    return y + weights[f"{name}.bias"][:, None, None]


def convolutional(weights, name, x, activation, t=None):
    for i in range(2):
        x = activation(convolution(weights, f"{name}.{i}", x, t))
    return convolution(weights, f"{name}.2", x, t)


def integrate(problem: Problem, field, weights, y0, gap=None):
    """From 0 to 1; each sample at the pace of its gap. Also returns the number of steps."""

    def vector_field(t, y, weights):
        h, m = y
        dm = field(weights, t, h) - jax.nn.sigmoid(weights["omega"]) * m
        dh = m
        if problem.gated:
            dh, dm = jnp.tanh(m), dm - jax.nn.softplus(weights["chi"]) * h
        return (dh, dm) if gap is None else (gap[:, None] * dh, gap[:, None] * dm)

    sol = diffrax.diffeqsolve(
        diffrax.ODETerm(vector_field),
        diffrax.Dopri5(),
        t0=0.0,
        t1=1.0,
        dt0=None,
        y0=y0,
        args=weights,
        stepsize_controller=diffrax.PIDController(rtol=problem.tolerance, atol=problem.tolerance),
        adjoint=diffrax.RecursiveCheckpointAdjoint(),
    )
    assert sol.ys is not None
    h, m = sol.ys
    return (h[-1], m[-1]), sol.stats["num_steps"]


def point_cloud(problem: Problem):
    def field(weights, t, h):
        return dense(weights, "field", h, jax.nn.elu)

    def loss(weights, batch):
        points, targets = batch
        m = dense(weights, "start", points, lambda x: jnp.clip(x, -5.0, 5.0))
        (h, _), steps = integrate(problem, field, weights, (points, m))
        outputs = jnp.tanh(linear(weights, "readout", h))[:, 0]
        return jnp.mean((outputs - targets) ** 2), steps

    return loss


def images(problem: Problem):
    def field(weights, t, h):
        return convolutional(weights, "field", h, jax.nn.relu, t)

    def loss(weights, batch):
        pixels, labels = batch
        pixels = jnp.transpose(pixels, (0, 3, 1, 2))
        start = convolutional(weights, "start", pixels, lambda x: jax.nn.leaky_relu(x, 0.3))
        extra = (start.shape[1] - pixels.shape[1]) // 2
        y0 = jnp.concatenate([pixels, start[:, :extra]], axis=1), start[:, extra:]
        (h, _), steps = integrate(problem, field, weights, y0)
        logits = linear(weights, "readout", h.reshape(h.shape[0], -1))
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, labels)), steps

    return loss


@jax.custom_vjp
def clipped(y):
    """The state; the adjoint of each sample is cut to an ℓ2 norm of 1."""
    return y


def _clip_backward(_, grads):
    norm = jnp.sqrt(sum(jnp.sum(g**2, axis=1, keepdims=True) for g in grads))
    return (tuple(g / jnp.maximum(norm, 1.0) for g in grads),)


clipped.defvjp(lambda y: (y, None), _clip_backward)


def walker2d(problem: Problem):
    def field(weights, t, h):
        return linear(weights, "field.0", h)

    def loss(weights, batch):
        def stamp(y, at_stamp):
            x, gap = at_stamp
            h, m = clipped(y)
            changes = dense(weights, "cell", jnp.concatenate([h, m, x], axis=1), jnp.tanh)
            dh, dm = jnp.split(changes, 2, axis=1)
            y, steps = integrate(problem, field, weights, (h + dh, m + dm), gap)
            return y, (linear(weights, "readout", y[0]), steps)

        inputs = jnp.swapaxes(batch["inputs"], 0, 1)
        zeros = jnp.zeros((inputs.shape[1], weights["field.0.bias"].size), inputs.dtype)
        _, (outputs, steps) = jax.lax.scan(stamp, (zeros, zeros), (inputs, batch["gaps"].T))
        outputs = jnp.swapaxes(outputs, 0, 1)
        return jnp.mean((outputs - batch["targets"]) ** 2), jnp.sum(steps)

    return loss


def plane_vibration(problem: Problem):
    def field(weights, t, h):
        return dense(weights, "field", h, jax.nn.relu)

    def loss(weights, batch):
        def cross(y, gap):
            y, steps = integrate(problem, field, weights, y, gap)
            return y, (linear(weights, "readout", y[0]), steps)

        def stamp(y, at_stamp):
            x, gap = at_stamp
            h, m = clipped(y)
            y = linear(weights, "cell.of_input", x)
            y = y + linear(weights, "cell.of_h", h) + linear(weights, "cell.of_m", m)
            h, m = jnp.split(y, 2, axis=1)
            return cross((h, m), gap)

        inputs = batch["inputs"]
        start = linear(weights, "start", inputs.reshape(inputs.shape[0], -1))
        h, m = jnp.split(start, 2, axis=1)
        scanned = jnp.swapaxes(inputs, 0, 1), batch["gaps"].T
        y, (outputs, steps) = jax.lax.scan(stamp, (h, m), scanned)
        _, (rest, more) = jax.lax.scan(cross, y, jnp.diff(batch["horizons"], axis=1).T)
        forecasts = jnp.swapaxes(jnp.concatenate([outputs[-1:], rest]), 0, 1)
        outputs = jnp.swapaxes(outputs, 0, 1)
        forecast = jnp.mean((forecasts - batch["forecast"]) ** 2)
        one_step = jnp.mean((outputs - batch["targets"]) ** 2)
        return forecast + problem.task.penalty * one_step, jnp.sum(steps) + jnp.sum(more)

    return loss


LOSSES = {
    "point-cloud": point_cloud,
    "plane-vibration": plane_vibration,
    "walker2d": walker2d,
    "mnist": images,
    "cifar10": images,
}


class DiffraxUpdate:
    """The update of a problem."""

    def __init__(self, problem: Problem):
        weights = in_torch_layout(problem.model, pixels_of(problem.batch))
        self.weights = {name: jnp.asarray(x) for name, x in weights.items()}
        self.batch = problem.batch
        optimiser = optax.adam(problem.learning_rate)
        self.moments = optimiser.init(self.weights)
        loss = LOSSES[problem.name](problem)

        @jax.jit
        def update(weights, moments, batch):
            (value, steps), grads = jax.value_and_grad(loss, has_aux=True)(weights, batch)
            changes, moments = optimiser.update(grads, moments)
            return optax.apply_updates(weights, changes), moments, (value, grads, steps)

        self.function = update
        self.arguments = self.weights, self.moments, self.batch

    def gradient(self, told) -> dict[str, np.ndarray]:
        """By the names of `in_torch_layout`."""
        return {name: np.asarray(x) for name, x in told[1].items()}
