"""Evaluations of Nystrom8, Nystrom4 and Dopri5 against the damping γ, on damped oscillators.

The oscillators h'' + γ h' = −k h, k = 1 … 36, are solved as one system over one time span, against
their closed form. For every γ the geometric mean, over all errors that both reach, of a pair's
evaluations over those of Dopri5, and the evaluations at one tolerance with the errors reached.
Where the mean passes 1 a Runge–Kutta pair is the better choice: `STIFF_DAMPING` of hbnode.solve.

    python benchmarks/damping.py
"""

from __future__ import annotations

import common
import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import expm
from work_precision import log_ratio

import hbnode

SOLVERS = {
    "Dopri5": diffrax.Dopri5(),
    "Nystrom4": hbnode.Nystrom4(),
    "Nystrom8": hbnode.Nystrom8(),
}
GAMMAS = (0.0, 2.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0)
SPANS = (1.0, 4.0, 8.0)
STIFFNESS = np.array([1.0, 4.0, 9.0, 16.0, 25.0, 36.0])
TOLERANCES = 10.0 ** -np.arange(3, 9.01, 0.5)
SHOWN = 1e-5


def exact(gamma: float, T: float) -> np.ndarray:
    """(h, m) at T of every oscillator, from h = 1 at rest."""
    ends = [expm(T * np.array([[0.0, 1.0], [-k, -gamma]]))[:, 0] for k in STIFFNESS]
    return np.stack(ends, axis=1)


def program(solver, T: float):
    """The end state with its NFE, as a function of γ and the tolerance."""
    y0 = jnp.ones(STIFFNESS.size), jnp.zeros(STIFFNESS.size)

    @jax.jit
    def run(gamma, tol):
        dynamics = hbnode.HBNODE(lambda t, h, args: -STIFFNESS * h, gamma)
        sol = hbnode.solve(
            dynamics, y0, [0.0, T], solver=solver, rtol=tol, atol=tol, max_steps=10**5
        )
        return jnp.stack([y[-1] for y in sol.ys]), sol.stats.nfe

    return run


def main() -> None:
    print(common.machine())
    for T in SPANS:
        print(f"oscillators, k = 1 … 36, T = {T:g}: NFE over Dopri5's at equal error;")
        print(f"NFE (error) at rtol = atol = {SHOWN:g}")
        print(
            f"{'γ':>6s}{'Nystrom4':>10s}{'Nystrom8':>10s}   "
            + "".join(f"{n:>18s}" for n in SOLVERS)
        )
        programs = {name: program(solver, T) for name, solver in SOLVERS.items()}
        for gamma in GAMMAS:
            truth, curves, shown = exact(gamma, T), {}, ""
            for name, run in programs.items():
                points = []
                for tol in TOLERANCES:
                    y, nfe = run(jnp.array(gamma), tol)
                    points.append((float(nfe), float(np.linalg.norm(y - truth))))
                curves[name] = points
                nfe, error = points[int(np.argmin(np.abs(TOLERANCES - SHOWN)))]
                shown += f"{f'{nfe:.0f} ({error:.1e})':>18s}"
            ratios = [np.exp(log_ratio(curves[n], curves["Dopri5"])) for n in SOLVERS]
            print(f"{gamma:6g}{ratios[1]:10.2f}{ratios[2]:10.2f}   {shown}", flush=True)


if __name__ == "__main__":
    main()
