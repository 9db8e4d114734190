"""Evaluations against achieved error: every solver on trained point-cloud HBNODEs.

Forward: the error of (h, m) at the end against the forward NFE. Backward: the error of the whole
gradient of `ContinuousAdjoint` against the backward NFE, both solves at one tolerance. Prints the
geometric mean, over all errors that both reach, of the evaluations over those of Dopri5.

    python benchmarks/work_precision.py [--figure work_precision.svg] [--json FILE]
"""

from __future__ import annotations

import argparse
import json

import common
import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import hbnode

PROBLEMS = [("tanh", 1.0), ("tanh", 8.0), ("elu", 1.0), ("elu", 8.0)]
SOLVERS = {
    "Dopri5": diffrax.Dopri5(),
    "Tsit5": diffrax.Tsit5(),
    "Nystrom4": hbnode.Nystrom4(),
    "Nystrom5": hbnode.Nystrom5(),
    "Nystrom6": hbnode.Nystrom6(),
    "Nystrom8": hbnode.Nystrom8(),
}
TOLERANCES = 10.0 ** -np.arange(3, 9.01, 0.5)
DEFAULT = "Nystrom8"


def programs(model, T: float, solver):
    """The end state with its NFE, and the gradient with its NFE, as functions of a tolerance."""
    x, targets = common.cloud()
    params, static = eqx.partition(model, eqx.is_inexact_array)
    ts = jnp.array([0.0, T])

    @jax.jit
    def forward(tol):
        sol = hbnode.solve(
            model.dynamics, model.lift(x), ts, solver=solver, rtol=tol, atol=tol, max_steps=10**5
        )
        return jnp.stack([y[-1] for y in sol.ys]), sol.stats.nfe

    def loss(params, probe, tol):
        model = eqx.combine(params, static)
        sol = hbnode.solve(
            model.dynamics, model.lift(x), ts, solver=solver, rtol=tol, atol=tol,
            gradient=hbnode.ContinuousAdjoint(), probe=probe, max_steps=10**5,
        )  # fmt: skip
        # summed over the points, so that the adjoint has the size the tolerance is meant for
        return targets.size * model.error(sol.ys[0][-1], targets)

    @jax.jit
    def backward(tol):
        grads, nfe = jax.grad(loss, argnums=(0, 1))(params, 0.0, tol)
        return ravel_pytree(grads)[0], nfe

    return {"forward": forward, "backward": backward}


def curves(model, T: float) -> dict:
    """{direction: {solver: [(nfe, error), …]}}, one point for each tolerance."""
    truth = {}
    reference = programs(model, T, diffrax.Dopri8())
    for direction, run in reference.items():
        truth[direction] = np.asarray(run(1e-12)[0])
    result: dict = {"forward": {}, "backward": {}}
    for name, solver in SOLVERS.items():
        for direction, run in programs(model, T, solver).items():
            points = []
            for tol in TOLERANCES:
                value, nfe = run(tol)
                error = np.linalg.norm(np.asarray(value) - truth[direction])
                points.append((float(nfe), float(error / np.linalg.norm(truth[direction]))))
            result[direction][name] = points
        jax.clear_caches()
    return result


def log_ratio(points, baseline) -> float:
    """The mean of log(evaluations / those of the baseline) over the errors that both reach."""

    def by_error(points):
        nfe, error = np.log(np.array(points)).T
        order = np.argsort(error)
        return error[order], nfe[order]

    (ea, na), (eb, nb) = by_error(points), by_error(baseline)
    grid = np.linspace(max(ea[0], eb[0]), min(ea[-1], eb[-1]), 100)
    return float(np.mean(np.interp(grid, ea, na) - np.interp(grid, eb, nb)))


def draw(results: dict, path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FixedLocator, NullFormatter, ScalarFormatter

    plt.rcParams["svg.fonttype"] = "none"
    colours = dict(
        zip(
            SOLVERS, ["#000000", "#999999", "#0072B2", "#E69F00", "#CC79A7", "#009E73"], strict=True
        )
    )
    markers = dict(zip(SOLVERS, "os^vD*", strict=True))
    fig, axes = plt.subplots(
        2, len(results), figsize=(3.1 * len(results), 5.6), sharey="row", constrained_layout=True
    )
    for column, (title, result) in enumerate(results.items()):
        for row, direction in enumerate(("forward", "backward")):
            ax = axes[row, column]
            for name, points in result[direction].items():
                nfe, error = np.array(points).T
                order = np.argsort(nfe)
                ax.loglog(
                    nfe[order], error[order], color=colours[name], marker=markers[name], ms=4,
                    lw=1.2, label=name,
                )  # fmt: skip
            ax.grid(alpha=0.25, which="major")
            ax.xaxis.set_major_locator(FixedLocator([20, 50, 100, 200, 500, 1000]))
            ax.xaxis.set_major_formatter(ScalarFormatter())
            ax.xaxis.set_minor_formatter(NullFormatter())
            ax.set_xlabel(f"{direction} NFE")
            if row == 0:
                ax.set_title(title)
            if column == 0:
                ax.set_ylabel(
                    "relative error of (h, m)" if row == 0 else "relative error of the gradient"
                )
    handles, labels = axes[0, 0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    fig.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--figure", help="where to draw the diagrams (SVG, PDF or PNG)")
    parser.add_argument("--json", help="where to write all points")
    args = parser.parse_args()
    print(common.machine())
    results, ratios = {}, {}
    for activation, T in PROBLEMS:
        model, loss = common.trained(activation, T)
        title = f"{activation}, T = {T:g}"
        print(f"{title}: trained to a loss of {loss:.2g}", flush=True)
        results[title] = curves(model, T)
        for direction, by_solver in results[title].items():
            baseline = by_solver["Dopri5"]
            line = []
            for name, points in by_solver.items():
                r = log_ratio(points, baseline)
                ratios.setdefault((direction, name), []).append(r)
                ours, theirs = np.log(np.array(points))[:, 1], np.log(np.array(baseline))[:, 1]
                line.append(f"{name} {np.exp(r):.2f} ({np.exp(np.mean(ours - theirs)):.2g})")
            print(f"  {direction:8s} NFE at equal error (error at equal tolerance), over Dopri5's:")
            print("           " + ", ".join(line), flush=True)
    print("geometric means of NFE at equal error, over Dopri5's")
    summary = {}
    for direction in ("forward", "backward"):
        means = {n: float(np.exp(np.mean(ratios[direction, n]))) for n in SOLVERS}
        summary[direction] = means
        print(f"  {direction:8s} " + ", ".join(f"{n} {v:.3f}" for n, v in means.items()))
        print(f"           default ({DEFAULT}): {means[DEFAULT]:.3f}, target 0.6")
    if args.figure:
        draw(results, args.figure)
        print(f"drawn to {args.figure}")
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"machine": common.machine(), "summary": summary, "curves": results}, file)


if __name__ == "__main__":
    main()
