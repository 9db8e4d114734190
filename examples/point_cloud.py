"""Point-cloud separation: the five families of neural ODEs on one small problem.

The experiment of section 5.1 of "Heavy Ball Neural Ordinary Differential Equations": 40 points in
the disc |r| < 0.5 and 80 in the ring 0.85 < |r| < 1, targets −1 and +1. A model makes an initial
state of a point, integrates it from t = 0 to 1, and reads tanh(w·h(1) + b). It is trained on the
mean squared error with Adam (0.01) on batches of 50, tolerance 1e-7, in float64.

Every family is trained by the method "paper" (Dopri5, and the continuous adjoint with the error
of the parameter integrals controlled too), the HBNODE by "fast" (the library's defaults) as well.
One NFE is one evaluation of the field on the whole batch; a backward one has its vector-Jacobian
product with it.

    python examples/point_cloud.py --seeds 3 --updates 300
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import importlib.util
import time
from pathlib import Path
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

import hbnode

INNER, OUTER, BATCH, LEARNING_RATE, TOLERANCE = 40, 80, 50, 0.01, 1e-7
EVERY = 10  # updates in one call of the compiled function, and between two looks at the loss
SEPARATED = 1e-3

# Parameters as the paper counts them. The layers of its table come to 527 for the SONODE, and with
# both γ and ξ learned to 569 for the GHBNODE.
PAPER_PARAMETERS = {"NODE": 525, "ANODE": 567, "SONODE": 528, "HBNODE": 568, "GHBNODE": 568}


# The models: sizes from the paper's appendix.


class Field(eqx.Module):
    """Three linear layers with ELU between them, of the state of each point; t is not used."""

    net: eqx.nn.MLP

    def __init__(self, inputs: int, outputs: int, width: int, key: Array):
        self.net = eqx.nn.MLP(inputs, outputs, width, 2, jax.nn.elu, key=key)

    def __call__(self, t, y, args):
        return jax.vmap(self.net)(jnp.concatenate(y, axis=-1) if isinstance(y, tuple) else y)


class Model(eqx.Module):
    """Points -> initial state -> solution at t = 1 -> numbers in (−1, 1)."""

    dynamics: hbnode.NODE | hbnode.ANODE | hbnode.SONODE | hbnode.HBNODE | hbnode.GHBNODE
    velocity: eqx.nn.MLP | None
    readout: eqx.nn.Linear

    def lift(self, x: Float[Array, "points 2"]):
        """The initial state: zeros in the extra channel, or an initial velocity from a network."""
        if isinstance(self.dynamics, hbnode.ANODE):
            return self.dynamics.lift(x)
        return x if self.velocity is None else (x, jax.vmap(self.velocity)(x))

    def __call__(self, x: Float[Array, "points 2"], method: Method, probe=None):
        sol = hbnode.solve(
            self.dynamics,
            self.lift(x),
            jnp.array([0.0, 1.0]),
            solver=method.solver,
            gradient=method.gradient,
            rtol=TOLERANCE,
            atol=TOLERANCE,
            probe=probe,
            throw=False,
        )
        h = sol.ys if self.velocity is None else sol.ys[0]
        return jnp.tanh(jax.vmap(self.readout)(h[-1]))[:, 0], sol.stats.nfe


def make_model(family: str, key: Array) -> Model:
    field_key, velocity_key, readout_key = jax.random.split(key, 3)

    def velocity(width):
        return eqx.nn.MLP(2, 2, width, 2, _hard_tanh, key=velocity_key)

    def readout(inputs):
        return eqx.nn.Linear(inputs, 1, key=readout_key)

    match family:
        case "NODE":
            return Model(hbnode.NODE(Field(2, 2, 20, field_key)), None, readout(2))
        case "ANODE":
            return Model(hbnode.ANODE(Field(3, 3, 20, field_key), augment=1), None, readout(3))
        case "SONODE":
            return Model(hbnode.SONODE(Field(4, 2, 13, field_key)), velocity(13), readout(2))
        case "HBNODE":
            return Model(hbnode.HBNODE(Field(2, 2, 14, field_key)), velocity(14), readout(2))
        case "GHBNODE":
            return Model(hbnode.GHBNODE(Field(2, 2, 14, field_key)), velocity(14), readout(2))
    raise ValueError(f"no family {family!r}")


def _hard_tanh(x):
    return jnp.clip(x, -5.0, 5.0)


def count_parameters(model: Model) -> int:
    return sum(x.size for x in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array)))


class Method(eqx.Module):
    """How a model is solved and differentiated; None stands for the library's default."""

    solver: diffrax.AbstractSolver | None = None
    gradient: hbnode.ContinuousAdjoint | None = None


METHODS = {"paper": Method(diffrax.Dopri5(), hbnode.ContinuousAdjoint("full")), "fast": Method()}
COMPARED = [
    ("NODE", "paper"),
    ("ANODE", "paper"),
    ("SONODE", "paper"),
    ("HBNODE", "paper"),
    ("GHBNODE", "paper"),
    ("HBNODE", "fast"),
]


# The data and the training.


class Data(NamedTuple):
    points: Float[Array, "points 2"]
    targets: Float[Array, " points"]


def make_data(key: Array) -> Data:
    """Points uniform in area: the square of the radius is uniform."""
    radius_key, angle_key = jax.random.split(key)
    inner = jnp.arange(INNER + OUTER) < INNER
    low, high = jnp.where(inner, 0.0, 0.85**2), jnp.where(inner, 0.5**2, 1.0)
    radius = jnp.sqrt(jax.random.uniform(radius_key, inner.shape, minval=low, maxval=high))
    angle = jax.random.uniform(angle_key, inner.shape, maxval=2 * jnp.pi)
    points = radius[:, None] * jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)
    return Data(points, jnp.where(inner, -1.0, 1.0))


OPTIMISER = optax.adam(LEARNING_RATE)


class State(eqx.Module):
    """What training changes. `finite` turns false, for good, at the first loss or gradient that is
    not finite: a solve that failed. The model is then left as it was."""

    model: Model
    moments: Any
    key: Array
    finite: Array


def start(model: Model, key: Array) -> State:
    moments = OPTIMISER.init(eqx.filter(model, eqx.is_inexact_array))
    return State(model, moments, key, jnp.array(True))


@eqx.filter_jit
def train(state: State, data: Data, method: Method) -> tuple[State, Float[Array, "updates 2"]]:
    """`EVERY` updates; returns the NFEs of each, forward and backward."""
    arrays, static = eqx.partition(state, eqx.is_array)

    def loss(params, rest, probe, points, targets):
        predictions, nfe = eqx.combine(params, rest)(points, method, probe)
        return jnp.mean((predictions - targets) ** 2), nfe

    def update(arrays):
        state: State = eqx.combine(arrays, static)
        params, rest = eqx.partition(state.model, eqx.is_inexact_array)
        key, batch_key = jax.random.split(state.key)
        batch = jax.random.choice(batch_key, data.points.shape[0], (BATCH,), replace=False)
        value_and_grad = jax.value_and_grad(loss, argnums=(0, 2), has_aux=True)
        (value, nfe_forward), (grads, nfe_backward) = value_and_grad(
            params, rest, 0.0, data.points[batch], data.targets[batch]
        )
        finite = jax.tree.reduce(
            lambda ok, g: ok & jnp.all(jnp.isfinite(g)), grads, jnp.isfinite(value)
        )
        steps, moments = OPTIMISER.update(grads, state.moments)
        moved = State(eqx.apply_updates(state.model, steps), moments, key, finite)
        kept = eqx.tree_at(lambda s: s.finite, state, finite)
        moved, kept = eqx.filter(moved, eqx.is_array), eqx.filter(kept, eqx.is_array)
        arrays = jax.tree.map(lambda a, b: jnp.where(finite, a, b), moved, kept)
        return arrays, jnp.stack([nfe_forward.astype(nfe_backward.dtype), nfe_backward])

    def scanned(arrays, _):
        nothing = jnp.full(2, jnp.nan)
        return jax.lax.cond(arrays.finite, update, lambda arrays: (arrays, nothing), arrays)

    arrays, counts = jax.lax.scan(scanned, arrays, None, length=EVERY)
    return eqx.combine(arrays, static), counts


@eqx.filter_jit
def full_loss(model: Model, data: Data, method: Method) -> Float[Array, ""]:
    """The loss on all points."""
    predictions, _ = model(data.points, method)
    return jnp.mean((predictions - data.targets) ** 2)


@dataclasses.dataclass(frozen=True)
class Runs:
    """One family trained with one method from several seeds. NaN where a run had diverged."""

    family: str
    method: str
    parameters: int
    losses: np.ndarray  # seeds × looks: before training and after every `EVERY` updates
    nfes: np.ndarray  # seeds × updates × (forward, backward)
    seconds: np.ndarray  # per update, of each seed

    @property
    def label(self) -> str:
        return self.family if self.method == "paper" else f"{self.family}, {self.method}"

    def row(self) -> dict[str, Any]:
        """The line of the table: losses over the runs that did not diverge, NFEs over the last
        `EVERY` updates."""
        final = self.losses[:, -1]
        alive = np.isfinite(final)
        forward, backward = self.nfes[alive, -EVERY:].mean((0, 1)) if alive.any() else [np.nan] * 2
        return {
            "model": self.family,
            "method": self.method,
            "parameters": self.parameters,
            "parameters_paper": PAPER_PARAMETERS[self.family],
            "runs": len(final),
            "diverged": int((~alive).sum()),
            "loss_mean": final[alive].mean() if alive.any() else np.nan,
            "loss_std": final[alive].std() if alive.any() else np.nan,
            "separated": int((final[alive] < SEPARATED).sum()),
            "nfe_forward": forward,
            "nfe_backward": backward,
            "seconds_per_update": self.seconds.mean(),
        }


def run(family: str, method_name: str, seeds: int, updates: int) -> Runs:
    """Trains from each seed in turn, all with the same compiled functions."""
    method = METHODS[method_name]
    losses = np.full((seeds, updates // EVERY + 1), np.nan)
    nfes = np.full((seeds, updates, 2), np.nan)
    seconds = np.full(seeds, np.nan)
    parameters = 0
    for seed in range(seeds):
        data_key, model_key, train_key = jax.random.split(jax.random.key(seed), 3)
        data = make_data(data_key)
        state = start(make_model(family, model_key), train_key)
        parameters = count_parameters(state.model)
        if seed == 0:  # once for nothing, so that no compilation is timed below
            began = time.perf_counter()
            jax.block_until_ready(train(state, data, method))
            jax.block_until_ready(full_loss(state.model, data, method))
            spent = time.perf_counter() - began
            print(f"{family:8s} {method_name:6s} compiled in {spent:.1f} s", flush=True)
        losses[seed, 0] = full_loss(state.model, data, method)
        spent, done = 0.0, 0
        while done < updates and state.finite:
            began = time.perf_counter()
            state, counts = jax.block_until_ready(train(state, data, method))
            spent += time.perf_counter() - began
            nfes[seed, done : done + EVERY] = counts
            done += EVERY
            if state.finite:
                losses[seed, done // EVERY] = full_loss(state.model, data, method)
        taken = int(np.isfinite(nfes[seed, :, 0]).sum())
        seconds[seed] = spent / taken
        end = f"loss {losses[seed, -1]:.1e}" if state.finite else f"diverged at update {taken}"
        print(
            f"{family:8s} {method_name:6s} seed {seed + 1}/{seeds}  {end}  "
            f"NFE {np.nanmax(nfes[seed, :, 0]):.0f} forward, "
            f"{np.nanmax(nfes[seed, :, 1]):.0f} backward at most  {spent:.1f} s",
            flush=True,
        )
    return Runs(family, method_name, parameters, losses, nfes, seconds)


# The report.


def print_table(rows: list[dict[str, Any]]) -> None:
    head = (
        f"{'model':8s} {'method':6s} {'parameters':>10s} {'(paper)':>7s} {'final loss':>19s} "
        f"{'separated':>9s} {'diverged':>8s} {'NFE fwd':>7s} {'NFE bwd':>7s} {'ms/update':>9s}"
    )
    print(f"\n{head}\n{'-' * len(head)}")
    for r in rows:
        diverged = r["diverged"] == r["runs"]
        loss = "-" if diverged else f"{r['loss_mean']:.1e} ± {r['loss_std']:.1e}"
        print(
            f"{r['model']:8s} {r['method']:6s} {r['parameters']:10d} {r['parameters_paper']:7d} "
            f"{loss:>19s} {r['separated']:>6d}/{r['runs']:<2d} {r['diverged']:8d} "
            f"{r['nfe_forward']:7.1f} {r['nfe_backward']:7.1f} "
            f"{1e3 * r['seconds_per_update']:9.1f}"
        )
    print(
        f"\nfinal loss: mean ± standard deviation on all points. separated: runs with a loss below "
        f"{SEPARATED:g}.\nNFE: mean of the last {EVERY} updates. paper: Dopri5, continuous adjoint "
        "with the full norm. fast: the library's defaults."
    )


def write_table(rows: list[dict[str, Any]], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


# The palette of Okabe and Ito, which colour-blind readers can tell apart.
COLOURS = {
    "NODE": "#000000",
    "ANODE": "#E69F00",
    "SONODE": "#009E73",
    "HBNODE": "#0072B2",
    "GHBNODE": "#D55E00",
}


def draw(results: list[Runs], path: Path) -> None:
    """Loss and NFEs against updates: the median over the runs, and a band between the quartiles."""
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams.update({"svg.hashsalt": "hbnode", "font.size": 9, "axes.titlesize": 10})
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(10, 3.6), layout="constrained")
    titles = "Loss on all points", "Forward NFE of an update", "Backward NFE of an update"
    for axis, title in zip(axes, titles, strict=True):
        axis.set_title(title, loc="left")
        axis.set_xlabel("updates")
        axis.grid(color="0.92", linewidth=0.8)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_yscale("log")
    axes[2].sharey(axes[1])
    for runs in results:
        dashes = "-" if runs.method == "paper" else (0, (3, 1.2))
        style: dict[str, Any] = {"color": COLOURS[runs.family], "linestyle": dashes}
        looks = np.arange(runs.losses.shape[1]) * EVERY
        windows = looks[1:] - EVERY / 2  # an NFE is drawn as the mean of `EVERY` updates
        nfes = runs.nfes.reshape(len(runs.nfes), -1, EVERY, 2).mean(axis=2)
        curves = (looks, runs.losses), (windows, nfes[..., 0]), (windows, nfes[..., 1])
        for axis, (x, y) in zip(axes, curves, strict=True):
            known = np.isfinite(y).any(axis=0)
            if not known.any():
                continue
            low, middle, high = np.nanquantile(y[:, known], [0.25, 0.5, 0.75], axis=0)
            axis.plot(x[known], middle, label=runs.label, linewidth=1.7, **style)
            axis.fill_between(x[known], low, high, color=style["color"], alpha=0.1, linewidth=0)
    axes[1].set_ylim(bottom=0)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=150)
    plt.close(figure)


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--seeds", type=int, default=3, help="runs of each model (default 3)")
    parser.add_argument(
        "--updates",
        type=int,
        default=300,
        help=f"updates of each run, a multiple of {EVERY} (default 300)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/demo"),
        help="folder for table.csv and point_cloud.svg (default runs/demo)",
    )
    options = parser.parse_args(argv)
    if options.seeds < 1:
        parser.error(f"--seeds must be 1 or more, got {options.seeds}")
    if options.updates < EVERY or options.updates % EVERY:
        parser.error(f"--updates must be a positive multiple of {EVERY}, got {options.updates}")
    if importlib.util.find_spec("matplotlib") is None:
        parser.error("matplotlib is missing: pip install 'hbnode[demo]'")
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out {options.out}: {error.strerror}")
    return options


def main(argv: list[str] | None = None) -> None:
    options = parse(argv)
    jax.config.update("jax_enable_x64", True)
    results = [run(*which, options.seeds, options.updates) for which in COMPARED]
    rows = [result.row() for result in results]
    print_table(rows)
    write_table(rows, options.out / "table.csv")
    draw(results, options.out / "point_cloud.svg")
    print(f"\nwrote {options.out / 'table.csv'} and {options.out / 'point_cloud.svg'}")


if __name__ == "__main__":
    main()
