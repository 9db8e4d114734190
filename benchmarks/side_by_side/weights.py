"""The weights of a model by name, in PyTorch's layout, for the versions written without hbnode.

The same map takes the gradient of a model, which is one of its trees, to that layout: it is linear.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hbnode.models import Convolution, LinearStart, OdeRnn, SumCell


def in_torch_layout(model: Any, pixels: tuple[int, int] | None = None) -> dict[str, np.ndarray]:
    """{name: array} of a model of the experiments or of its gradient. `pixels`: height and width
    of the images, which PyTorch reads channel by channel."""
    dynamics, cell = model.dynamics, getattr(model, "cell", None)
    weights: dict[str, np.ndarray] = {"omega": np.asarray(dynamics.gamma.omega)}
    weights |= _layers("field", _inside(dynamics.field))
    if hasattr(dynamics, "xi"):
        weights["chi"] = np.asarray(dynamics.xi.chi)
    if isinstance(model, OdeRnn):
        if isinstance(model.start, LinearStart):
            weights |= _linear("start", model.start.layer)
        if isinstance(cell, SumCell):
            weights |= _linear("cell.of_input", cell.of_input)
            weights |= _linear("cell.of_h", cell.of_state[0])
            weights |= _linear("cell.of_m", cell.of_state[1])
        else:
            weights |= _layers("cell", _inside(cell))
        return weights | _linear("readout", model.readout)
    weights |= _layers("start", _inside(model.start)) | _linear("readout", model.readout.layer)
    if pixels is not None:
        classes = weights["readout.weight"].shape[0]
        by_pixel = weights["readout.weight"].reshape(classes, *pixels, -1)
        weights["readout.weight"] = by_pixel.transpose(0, 3, 1, 2).reshape(classes, -1)
    return weights


def _inside(network: Any) -> list:
    """The layers of a field or of an initial network."""
    return getattr(network, "net", network).layers


def _layers(name: str, layers: list) -> dict[str, np.ndarray]:
    weights: dict[str, np.ndarray] = {}
    for i, layer in enumerate(layers):
        is_convolution = isinstance(layer, Convolution)
        weights |= (_convolution if is_convolution else _linear)(f"{name}.{i}", layer)
    return weights


def _linear(name: str, layer: Any) -> dict[str, np.ndarray]:
    return {f"{name}.weight": np.asarray(layer.weight).T, f"{name}.bias": np.asarray(layer.bias)}


def _convolution(name: str, layer: Any) -> dict[str, np.ndarray]:
    """The time comes after the other channels."""
    parts = [layer.weight] if layer.time_weight is None else [layer.weight, layer.time_weight]
    weight = np.concatenate([np.asarray(part) for part in parts], axis=2)
    return {f"{name}.weight": weight.transpose(3, 2, 0, 1), f"{name}.bias": np.asarray(layer.bias)}


def pixels_of(batch: Any) -> tuple[int, int] | None:
    """Height and width where the batch is one of images."""
    images = batch[0] if isinstance(batch, tuple) else None
    return images.shape[1:3] if images is not None and images.ndim == 4 else None
