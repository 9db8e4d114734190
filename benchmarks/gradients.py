"""One value-and-gradient of the point-cloud HBNODE, beside plain diffrax; and memory.

Times are taken in one process, in turns, and reported as medians with minima. The plain version is
diffrax as a user writes it: Dopri5, PIDController, RecursiveCheckpointAdjoint. "Equal error" runs
hbnode's default solver at the tolerance at which it reaches the error of Dopri5's end state.

    python benchmarks/gradients.py [--repeats 40] [--activation tanh] [--tol 1e-7]
"""

from __future__ import annotations

import argparse
import time

import common
import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import hbnode


def plain_diffrax(model, x, targets, tol, probe):
    def vector_field(t, y, model):
        h, m = y
        gamma = jax.nn.sigmoid(model.damping.omega)
        return m, -gamma * m + model.field(h)

    sol = diffrax.diffeqsolve(
        diffrax.ODETerm(vector_field),
        diffrax.Dopri5(),
        t0=0.0,
        t1=1.0,
        dt0=None,
        y0=model.lift(x),
        args=model,
        stepsize_controller=diffrax.PIDController(rtol=tol, atol=tol),
        adjoint=diffrax.RecursiveCheckpointAdjoint(),
    )
    assert sol.ys is not None
    h, _ = sol.ys
    return model.error(h[-1], targets), sol.stats["num_accepted_steps"]


def with_hbnode(solver, gradient=None):
    def loss(model, x, targets, tol, probe):
        sol = hbnode.solve(
            model.dynamics, model.lift(x), jnp.array([0.0, 1.0]), solver=solver,
            gradient=gradient, rtol=tol, atol=tol, probe=probe,
        )  # fmt: skip
        return model.error(sol.ys[0][-1], targets), sol.stats

    return loss


def compiled(loss, model, x, targets, tol):
    """A compiled value-and-gradient, and the seconds it took to trace and compile."""
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def objective(params, probe, tol):
        return loss(eqx.combine(params, static), x, targets, tol, probe)

    function = jax.jit(jax.value_and_grad(objective, argnums=(0, 1), has_aux=True))
    start = time.perf_counter()
    function.lower(params, 0.0, tol).compile()
    seconds = time.perf_counter() - start
    jax.block_until_ready(function(params, 0.0, tol))
    return lambda tol: function(params, 0.0, tol), seconds


def in_turns(cases: dict, repeats: int, inner: int = 3) -> dict:
    """{name: milliseconds of each repeat}, the cases one after the other in every repeat."""
    times = {name: [] for name in cases}
    for _ in range(repeats):
        for name, run in cases.items():
            start = time.perf_counter()
            jax.block_until_ready([run() for _ in range(inner)])
            times[name].append(1e3 * (time.perf_counter() - start) / inner)
    return times


def equal_error_tolerance(model, x, tol: float) -> tuple[float, float, float]:
    """The tolerance at which the default solver reaches the error of Dopri5 at `tol`."""

    def end(solver):
        def run(tol):
            ts = jnp.array([0.0, 1.0])
            sol = hbnode.solve(
                model.dynamics, model.lift(x), ts, solver=solver, rtol=tol, atol=tol,
                max_steps=10**5,
            )  # fmt: skip
            return jnp.stack([y[-1] for y in sol.ys])

        return jax.jit(run)

    exact = end(diffrax.Dopri8())(1e-13)
    target = float(jnp.sqrt(jnp.mean((end(diffrax.Dopri5())(tol) - exact) ** 2)))
    default = end(None)
    best, reached = tol / 10, 0.0
    for factor in 10 ** np.arange(-1.0, 2.01, 0.05):
        error = float(jnp.sqrt(jnp.mean((default(tol * factor) - exact) ** 2)))
        if error > target:
            break
        best, reached = tol * factor, error
    return float(best), target, reached


def bare_field(model, x) -> tuple[float, float]:
    """Microseconds of one evaluation of the field, and of one with its product, in a loop."""

    def timed(function, *args, n=200):
        function = jax.jit(function)
        jax.block_until_ready(function(*args))
        best = np.inf
        for _ in range(20):
            start = time.perf_counter()
            jax.block_until_ready(function(*args))
            best = min(best, time.perf_counter() - start)
        return 1e6 * best / n / 6

    def forward(h):
        def body(i, h):
            for _ in range(6):
                h = 0.9 * h + 1e-3 * model.field(h)
            return h

        return jax.lax.fori_loop(0, 200, body, h)

    def backward(h):
        def body(i, carry):
            h, a, total = carry
            for _ in range(6):
                f, pull = jax.vjp(lambda net, h: net(h), model.field, h)
                net_bar, h_bar = pull(a)
                h, a = 0.9 * h + 1e-3 * f, 0.9 * a + 1e-3 * h_bar
                total = jax.tree.map(jnp.add, total, net_bar)
            return h, a, total

        zeros = jax.tree.map(jnp.zeros_like, model.field)
        return jax.lax.fori_loop(0, 200, body, (h, h, zeros))

    return timed(forward, x), timed(backward, x)


def memory(model, x, targets) -> None:
    """Temporary memory of the compiled program against the number of steps it has room for."""
    print("temporary memory (MB) of a value-and-gradient against max_steps")
    gradients = {
        "DiscreteAdjoint": hbnode.DiscreteAdjoint(),
        "Checkpointed": hbnode.Checkpointed(),
        "ContinuousAdjoint": hbnode.ContinuousAdjoint(),
    }
    steps = (16, 32, 64, 128, 256, 1024, 4096)
    print("  " + "max_steps".ljust(18) + "".join(f"{n:>8d}" for n in steps))
    params, static = eqx.partition(model, eqx.is_inexact_array)
    for name, gradient in gradients.items():
        row = []
        for n in steps:

            def objective(params, n=n, gradient=gradient):
                model = eqx.combine(params, static)
                sol = hbnode.solve(
                    model.dynamics, model.lift(x), jnp.array([0.0, 1.0]),
                    solver=diffrax.Dopri5(), gradient=gradient, max_steps=n,
                )  # fmt: skip
                return model.error(sol.ys[0][-1], targets)

            program = jax.jit(jax.grad(objective)).lower(params).compile()
            analysis = program.memory_analysis()
            row.append(float("nan") if analysis is None else analysis.temp_size_in_bytes / 1e6)
        print("  " + name.ljust(18) + "".join(f"{mb:8.2f}" for mb in row), flush=True)
    state = 3 * x.size * 8 / 1e6
    print(f"  one stored step (h, m and f) takes {state:.4f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--activation", choices=list(common.ACTIVATIONS), default="tanh")
    parser.add_argument("--tol", type=float, default=1e-7)
    args = parser.parse_args()
    print(common.machine())
    x, targets = common.cloud()
    model, loss = common.trained(args.activation, 1.0)
    print(f"point cloud, 120 points, width 14, {args.activation}, float64; loss {loss:.2g}")
    loose, target, reached = equal_error_tolerance(model, x, args.tol)
    print(
        f"Dopri5 at {args.tol:g} reaches an error of {target:.2g}, "
        f"the default solver {reached:.2g} at {loose:.3g}"
    )

    losses = {
        "plain diffrax": (plain_diffrax, args.tol),
        "Dopri5": (with_hbnode(diffrax.Dopri5()), args.tol),
        "default": (with_hbnode(None), args.tol),
        "default, equal error": (with_hbnode(None), loose),
        "Nystrom4": (with_hbnode(hbnode.Nystrom4()), args.tol),
        "Dopri5, continuous": (
            with_hbnode(diffrax.Dopri5(), hbnode.ContinuousAdjoint()),
            args.tol,
        ),
        "default, continuous": (with_hbnode(None, hbnode.ContinuousAdjoint()), args.tol),
    }
    runs, compile_seconds = {}, {}
    for name, (function, tol) in losses.items():
        run, compile_seconds[name] = compiled(function, model, x, targets, tol)
        runs[name] = lambda run=run, tol=tol: run(tol)
    plain = runs["plain diffrax"]()
    for name, run in runs.items():
        (value, _), (grads, _) = run()
        error = max(
            float(jnp.max(jnp.abs(a - b)))
            for a, b in zip(*map(jax.tree.leaves, (grads, plain[1][0])), strict=True)
        )
        assert abs(value - plain[0][0]) < 1e-4 and error < 1e-2, (name, value, error)

    f_us, vjp_us = bare_field(model, x)
    times = in_turns(runs, args.repeats)
    base, base_compile = np.median(times["plain diffrax"]), compile_seconds["plain diffrax"]
    print(f"bare field: {f_us:.1f} us an evaluation, {vjp_us:.1f} us with its product")
    print(
        f"{'':22s}{'ms':>7s}{'min':>7s}{'faster':>8s}{'compile s':>11s}{'ratio':>7s}"
        f"{'NFE':>6s}{'back':>6s}{'over bare':>11s}"
    )
    for name, ms in times.items():
        (_, stats), (_, nfe) = runs[name]()
        median, seconds = np.median(ms), compile_seconds[name]
        counts, over = " " * 12, ""
        if name != "plain diffrax":
            counts = f"{int(stats.nfe):6d}{int(nfe):6d}"
            over = f"{1e3 * median / (int(stats.nfe) * f_us + int(nfe) * vjp_us):11.2f}"
        print(
            f"{name:22s}{median:7.2f}{min(ms):7.2f}{base / median:7.2f}x{seconds:11.2f}"
            f"{seconds / base_compile:7.2f}{counts}{over}"
        )
    memory(model, x, targets)


if __name__ == "__main__":
    main()
