"""The networks of the paper's appendix: dense layers, and convolutions that see the time.

Weights and biases start uniform in ±1/√(fan in), as in the framework the paper used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree


def hard_tanh(x: Array) -> Array:
    """HTanh: the identity, cut off at ±5."""
    return jnp.clip(x, -5.0, 5.0)


def leaky_relu(x: Array) -> Array:
    """LReLU: slope 0.3 below zero."""
    return jnp.where(x >= 0, x, 0.3 * x)


def elu(x: Array) -> Array:
    """ELU: exp(x) − 1 below zero. Not by `expm1`, which takes twice as long; the two differ by
    rounding alone, relative to 1."""
    below = jnp.exp(jnp.where(x > 0, 0.0, x)) - 1.0
    return jnp.where(x > 0, x, below)


def _uniform(key: PRNGKeyArray, shape: Sequence[int], fan_in: int) -> Array:
    bound = fan_in**-0.5
    return jax.random.uniform(key, tuple(shape), minval=-bound, maxval=bound)


@final
class Linear(eqx.Module):
    """fc: x ↦ x W + b on the last axis, any axes before it."""

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]

    def __init__(self, inputs: int, outputs: int, *, key: PRNGKeyArray):
        weight_key, bias_key = jax.random.split(key)
        self.weight = _uniform(weight_key, (inputs, outputs), inputs)
        self.bias = _uniform(bias_key, (outputs,), inputs)

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        y = x @ self.weight
        return y + jnp.broadcast_to(self.bias, y.shape)


@final
class Dense(eqx.Module):
    """Linear layers of the given sizes with an activation between them."""

    layers: list[Linear]
    activation: Callable = eqx.field(static=True)

    def __init__(self, sizes: Sequence[int], activation: Callable, *, key: PRNGKeyArray):
        keys = jax.random.split(key, len(sizes) - 1)
        self.layers = [
            Linear(n, m, key=k) for n, m, k in zip(sizes[:-1], sizes[1:], keys, strict=True)
        ]
        self.activation = activation

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        *hidden, last = self.layers
        for layer in hidden:
            x = self.activation(layer(x))
        return last(x)


@final
class DenseField(eqx.Module):
    """A dense network as a field: of h, or of h and v side by side. The time is not read."""

    net: Dense

    def __call__(self, t, y, args):
        return self.net(jnp.concatenate(y, axis=-1) if isinstance(y, tuple) else y)


@final
class Convolution(eqx.Module):
    """conv: a convolution of images (height, width, channel) that keeps their size.

    With `time` the images get the time as one more channel first (tpad in the paper). A channel
    that is constant over the image adds t times a fixed pattern, which is made here from the
    weights alone: one number for each output channel inside, others along the border.
    """

    weight: Float[Array, "height width inputs outputs"]
    time_weight: Float[Array, "height width 1 outputs"] | None
    bias: Float[Array, " outputs"]

    def __init__(
        self, inputs: int, outputs: int, size: int, *, time: bool = False, key: PRNGKeyArray
    ):
        weight_key, bias_key = jax.random.split(key)
        channels = inputs + time
        fan_in = channels * size**2
        weight = _uniform(weight_key, (size, size, channels, outputs), fan_in)
        self.weight = weight[:, :, :inputs]
        self.time_weight = weight[:, :, inputs:] if time else None
        self.bias = _uniform(bias_key, (outputs,), fan_in)

    def __call__(
        self, x: Float[Array, "batch height width inputs"], t: Float[Array, ""] | float = 0.0
    ) -> Float[Array, "batch height width outputs"]:
        offset = self.bias
        if self.time_weight is not None:
            ones = jnp.ones((1, *x.shape[1:3], 1), x.dtype)
            pattern = t * _convolve(ones, self.time_weight)
            offset = jnp.broadcast_to(self.bias, pattern.shape) + pattern
        y = _convolve(x, self.weight)
        return y + jnp.broadcast_to(offset, y.shape)


def _convolve(x: Array, weight: Array) -> Array:
    if weight.shape[:2] == (1, 1):
        return x @ weight[0, 0]
    return same_convolution(x, weight)


@jax.custom_vjp
def same_convolution(
    x: Float[Array, "batch height width inputs"], weight: Float[Array, "k k inputs outputs"]
) -> Float[Array, "batch height width outputs"]:
    """A convolution with a kernel of odd size that keeps the size of the images.

    XLA's own gradient in the weights is slow on a CPU, within a loop many times slower than the
    convolution itself; here it is one matrix product for each image.
    """
    return jax.lax.conv_general_dilated(
        x, weight, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _convolution_forward(x, weight):
    return same_convolution(x, weight), (x, weight)


def _convolution_backward(residuals, y_bar):
    x, weight = residuals
    x_bar = same_convolution(y_bar, jnp.flip(weight, (0, 1)).swapaxes(2, 3))
    size, _, inputs, outputs = weight.shape
    border = size // 2

    def add(total, image):
        """What one image adds: it stays in the cache while its neighbourhoods are laid out."""
        x, y_bar = image
        height, width, _ = y_bar.shape
        padded = jnp.pad(x, ((border, border), (border, border), (0, 0)))
        shifted = [padded[i : i + height, j : j + width] for i in range(size) for j in range(size)]
        patches = jnp.concatenate(shifted, axis=-1).reshape(height * width, -1)
        return total + patches.T @ y_bar.reshape(height * width, -1), None

    zeros = jnp.zeros((size * size * inputs, outputs), weight.dtype)
    weight_bar, _ = jax.lax.scan(add, zeros, (x, y_bar))
    return x_bar, weight_bar.reshape(weight.shape)


same_convolution.defvjp(_convolution_forward, _convolution_backward)


@final
class ConvolutionalField(eqx.Module):
    """conv 1×1, conv 3×3, conv 1×1 with ReLU between, the time padded to each; of h, or of h and v
    side by side."""

    layers: list[Convolution]

    def __init__(self, inputs: int, outputs: int, width: int, *, key: PRNGKeyArray):
        self.layers = _three_convolutions(inputs, outputs, width, True, key)

    def __call__(self, t, y, args):
        x = jnp.concatenate(y, axis=-1) if isinstance(y, tuple) else y
        *hidden, last = self.layers
        for layer in hidden:
            x = jax.nn.relu(layer(x, t))
        return last(x, t)


@final
class ConvolutionalStart(eqx.Module):
    """The initial network of the image tasks: conv 1×1, conv 3×3, conv 1×1 with LReLU between.

    Of its 2n − c output channels the first n − c augment the c channels of the image to the
    position h, the other n are the initial velocity or momentum.
    """

    layers: list[Convolution]

    def __init__(self, inputs: int, state: int, width: int, *, key: PRNGKeyArray):
        self.layers = _three_convolutions(inputs, 2 * state - inputs, width, False, key)

    def __call__(self, x: Float[Array, "batch height width channels"]) -> PyTree[Array]:
        y = x
        *hidden, last = self.layers
        for layer in hidden:
            y = leaky_relu(layer(y))
        y = last(y)
        n = (y.shape[-1] + x.shape[-1]) // 2
        return jnp.concatenate([x, y[..., :-n]], axis=-1), y[..., -n:]


def _three_convolutions(inputs, outputs, width, time, key):
    sizes = [(inputs, width, 1), (width, width, 3), (width, outputs, 1)]
    keys = jax.random.split(key, 3)
    return [Convolution(*size, time=time, key=k) for size, k in zip(sizes, keys, strict=True)]


def count_parameters(model: PyTree) -> int:
    """How many numbers of a model are learned. Shapes in the place of arrays will do."""
    arrays = [x for x in jax.tree.leaves(model) if hasattr(x, "dtype")]
    return sum(x.size for x in arrays if jnp.issubdtype(x.dtype, jnp.inexact))
