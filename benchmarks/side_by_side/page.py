"""The page of the results: the hand-written text, and the tables made of the JSON file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

TORCH, DIFFRAX, FAST, PAPER = "torchdiffeq", "diffrax", "hbnode", "hbnode, paper's method"
FEW = 4
"""Images on which plain diffrax is measured; on a whole batch one update takes it minutes."""
TARGETS = {
    "point-cloud": (12.0, 3.0),
    "plane-vibration": (25.0, 3.0),
    "walker2d": (25.0, 4.0),
    "mnist": (1.5, 1.5),
    "cifar10": (1.5, 1.5),
}
"""How many times faster (c) should be than (a) and than (b)."""
OVERHEAD = {"mnist": 1.15, "cifar10": 1.15}
"""The update over its bare field evaluations; 2 for all others."""

INTRO = """\
# Benchmarks of training

One update (loss, gradient, Adam) of every training task, written three ways over the same weights, \
data, precision and tolerance:

- **(a)** PyTorch with torchdiffeq: `odeint_adjoint`, Dopri5, as these models are usually written \
(`benchmarks/side_by_side/in_torch.py`). It gets one thread or two, whichever is faster.
- **(b)** plain diffrax: `diffeqsolve`, Dopri5, `PIDController`, `RecursiveCheckpointAdjoint` \
(`in_diffrax.py`).
- **(c)** hbnode with its defaults, method `fast`.
- **(d)** hbnode with Dopri5 and the continuous adjoint of the full norm, method `paper`.

Sizes, batches, precision and tolerances are those of the paper's presets (images whole, batches of \
64). The weights are those after a few updates, the same for all. Loss and gradient of all versions \
must agree before anything is timed. The versions take turns within each repeat, so that whatever \
else the machine does hits all alike; "×" is the median over repeats of the ratio of times to (c) of \
the same repeat, with its range, and after the bar the ratio of the least times.

This page and `benchmarks.json` are written by `make bench`; each table is of one run. \
`benchmarks/work_precision.py` and `benchmarks/gradients.py` (`make bench-core`) measure solvers and \
gradients by themselves.
"""

IMAGES = """
On images (b) is measured on {few} of the 64 images, beside (c) and (d) on the same: XLA's gradient \
of a convolution in its weights is so slow inside a loop on a CPU that a whole batch takes (b) \
minutes.
"""

CHANGES = """
## Where the time went, and what was done

- **Evaluations on images.** The field has kinks (ReLU), on which a high order does not pay. \
`Nystrom4` reaches Dopri5's error at this tolerance with about half of its evaluations; `Nystrom8`, \
the default elsewhere, takes as many as Dopri5. The image tasks now take `Nystrom4` by default.
- **Weight gradient of the 3 × 3 convolution.** One matrix product for each image, whose \
neighbourhoods stay in the cache, instead of nine over the whole batch, each with a copy of it.
- **States kept.** The image tasks keep 16 states instead of 128, each of some megabytes. A recurrent \
model keeps two for each interval instead of eight: a scan stacks them for every stamp and copies \
them whether they are used or not.
- **ELU** by `exp` instead of `expm1`, which takes twice as long.
"""

MISSES = """
## What is missed, why, and what would come next

- **Point cloud, GHBNODE against (b).** Both sides take Dopri5 with nearly the same steps, and (c) \
is near the limit of its evaluations; what is left is the step itself. Next: position and momentum as one array, so that stages are combined by one \
product, and hidden layers of the stages kept instead of made again.
- **Image tasks, GHBNODE against (a).** A gate other than the identity has no Nyström form, so both \
sides take Dopri5, forward with the same evaluations. (a) makes more of them backward, and takes less \
time for each: oneDNN's gradients of a convolution against XLA's, which is what dominates. Next: a \
partitioned method for gated heavy balls; storing the hidden layers of the stages instead of making \
them again.
- **Walker2D against (a).** At this tolerance an interval is one step, and about half of the update is \
the recurrent cell and the readout, not the solve. Next: the weight gradients of the cell of all \
stamps contracted at once after the scan, and a record that keeps nothing for an interval of one step.
- **Overhead of the recurrent models.** The bare evaluations leave out cell, readout, clipping and the \
start of each interval, of which there are 64 or more, each with a record of its own. The field of \
Walker2D is a single linear layer, so there is little to be near to.
- **CIFAR-10, HBNODE over the bare field.** The initial network, the readout of all pixels and Adam are \
part of an update and not of the evaluations; with half of the evaluations they weigh more.
- **Compile times.** Most of it is XLA's code generation for unrolled stages and their products; what \
remains with a warm cache (`JAX_COMPILATION_CACHE_DIR`) is tracing in Python. Next: the product of a \
step traced once for all stages. The command line tool does not set the cache by itself, since XLA's \
programs for CPUs belong to one kind of processor, and a home folder may be shared by several.
- **Memory of `DiscreteAdjoint`** is set aside for the steps that fit its slots, not as they are \
taken: XLA has no arrays that grow.
"""


def write_page(found: dict) -> str:
    """The page in Markdown."""
    machine, tasks = found["machine"], found["tasks"]
    versions = ", ".join(f"{name} {x}" for name, x in machine["versions"].items())
    lines = [
        INTRO,
        f"**Machine:** {machine['processor']}, {machine['cores']} cores, Python "
        f"{machine['python']}; {versions}.",
    ]
    if "minutes" in found:
        before, after = (found["load"][k][0] for k in ("before", "after"))
        lines.append(
            f"The run took {found['minutes']:.0f} minutes; the load average was {before:.1f} before"
            f" and {after:.1f} after it (on a quiet machine it is near 0 before)."
        )
    lines += ["\n## Times", *_times(tasks), IMAGES.format(few=FEW)]
    lines += ["\n## Targets", *_targets(found), "\n## Agreement", *_agreement(tasks)]
    lines += ["\n## The limit", LIMIT, *_limit(tasks), "\n## Compiling", *_compiling(tasks)]
    lines += ["\n## Memory", *_memory(found), "\n## Many seeds", *_seeds(found)]
    return "\n".join([*lines, CHANGES, MISSES]).replace("\n\n\n", "\n\n").rstrip() + "\n"


LIMIT = """
What an update would take if it were nothing but its field evaluations: NFE forward × the time of f, \
plus NFE backward × the time of f with its vector–Jacobian product, each measured in a loop. "over" is \
the least time of an update over that. It is no strict bound: the compiler lays the loops out \
differently, and values a little below 1 occur.
"""


def _cases(tasks: dict):
    for task, models in tasks.items():
        for model, result in models.items():
            yield task, model, result


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["", *("| " + " | ".join(line) + " |" for line in lines)]


def _number(x: float) -> str:
    """Three digits, or all before the point."""
    return f"{x:.0f}" if x >= 1000 else f"{x:.3g}"


def _ms(version: dict) -> str:
    ms = 1e3 * np.array(version["seconds"])
    return f"{_number(np.median(ms))} ({_number(ms.min())})"


def _nfe(version: dict) -> str:
    if "steps" in version:
        return f"{version['steps']} steps"
    return f"{version['nfe_forward']} + {version['nfe_backward']:.0f}"


def _where(result: dict, rival: str) -> dict:
    """The versions that were measured beside `rival`."""
    return result["versions"] if rival in result["versions"] else result["few_images"]


def ratios(result: dict, rival: str) -> tuple[float, float, float, float]:
    """How many times slower than (c): the median, least and largest ratio; that of the minima."""
    beside = _where(result, rival)
    theirs, ours = (np.array(beside[name]["seconds"]) for name in (rival, FAST))
    each = theirs / ours
    return float(np.median(each)), each.min(), each.max(), theirs.min() / ours.min()


def _ratio(result: dict, rival: str) -> str:
    median, low, high, least = ratios(result, rival)
    return f"{median:.3g}× [{low:.3g}, {high:.3g}] \\| {least:.3g}×"


def _times(tasks: dict) -> list[str]:
    rows = []
    for task, model, result in _cases(tasks):
        v = result["versions"]
        diffrax = _where(result, DIFFRAX)
        mark = "" if DIFFRAX in v else f", (c) {_ms(diffrax[FAST])} on few images"
        rows.append([
            f"{task} {model}", _ms(v[TORCH]) + f", {v[TORCH]['threads']} thr.",
            _ms(diffrax[DIFFRAX]) + mark, _ms(v[FAST]), _ms(v[PAPER]), _ratio(result, TORCH),
            _ratio(result, DIFFRAX),
        ])  # fmt: skip
    head = ("task", "(a) ms", "(b) ms", "(c) ms", "(d) ms", "(c) against (a)", "(c) against (b)")
    counts = [
        [f"{task} {model}", *(_nfe(result["versions"][name]) for name in (TORCH, FAST, PAPER))]
        for task, model, result in _cases(tasks)
    ]
    times = ["\nMedian, and the least in brackets, in milliseconds.", *_table(head, rows)]
    nfe = _table(("task", "(a)", "(c)", "(d)"), counts)
    return [*times, "\nEvaluations of the field, forward + backward.", *nfe]


def _verdict(value: float, target: float, more: bool = True) -> str:
    met = value >= target if more else value <= target
    return "met" if met else "**missed**"


def _targets(found: dict) -> list[str]:
    rows = []
    for task, model, result in _cases(found["tasks"]):
        for rival, target in zip((TORCH, DIFFRAX), TARGETS[task], strict=True):
            value = ratios(result, rival)[0]
            what = f"{task} {model}: (c) against {rival}"
            rows.append((what, f"≥ {target:g}×", f"{value:.3g}×", _verdict(value, target)))
        over, most = _over(result), OVERHEAD.get(task, 2.0)
        what = f"{task} {model}: over the bare field"
        rows.append((what, f"≤ {most:g}×", f"{over:.3g}×", _verdict(over, most, False)))
        ours = result["versions"][FAST]
        for key, most in (("compile_seconds", 5.0), ("warm_compile_seconds", 1.0)):
            what = f"{task} {model}: {key.replace('_', ' ')}"
            seconds = ours[key]
            rows.append((what, f"≤ {most:g} s", f"{seconds:.2g} s", _verdict(seconds, most, False)))
    if "many" in found:
        value = _throughput(found["many"]["seeds"])
        what = "point-cloud: seeds at once against one after the other"
        rows.append((what, "≥ 1.7×", f"{value:.3g}×", _verdict(value, 1.7)))
    return _table(("what", "target", "measured", ""), rows)


def _agreement(tasks: dict) -> list[str]:
    rows = []
    for task, model, result in _cases(tasks):
        for rival in (TORCH, DIFFRAX, FAST):
            version = _where(result, rival)[rival]
            offs = f"{version['loss_off']:.1e}", f"{version['gradient_off']:.1e}"
            rows.append((f"{task} {model}", rival, f"{result['tolerance']:g}", *offs))
    head = ("task", "version", "tolerance", "loss", "gradient")
    text = (
        "\nDistance from (d): of the loss, over 1 + |loss|; of the gradient, ‖difference‖ over "
        "‖gradient‖. Bounds that are asserted: 2e-3 in float64 and 2e-2 in float32 for the "
        "gradient, a tenth of that for the loss."
    )
    return [text, *_table(head, rows)]


def _bare(result: dict, version: dict) -> float:
    forward, backward = version["nfe_forward"], version["nfe_backward"]
    return forward * result["field_seconds"] + backward * result["product_seconds"]


def _over(result: dict) -> float:
    version = result["versions"][FAST]
    return min(version["seconds"]) / _bare(result, version)


def _limit(tasks: dict) -> list[str]:
    rows = []
    for task, model, result in _cases(tasks):
        times = (1e6 * result["field_seconds"], 1e6 * result["product_seconds"])
        for name in (FAST, PAPER, TORCH):
            version = result["versions"][name]
            bare, least = _bare(result, version), min(version["seconds"])
            rows.append((
                f"{task} {model}", name, *map(_number, times), _number(1e3 * bare),
                _number(1e3 * least), f"{least / bare:.3g}×",
            ))  # fmt: skip
    return _table(("task", "version", "f µs", "product µs", "limit ms", "update ms", "over"), rows)


def _compiling(tasks: dict) -> list[str]:
    rows = []
    for task, model, result in _cases(tasks):
        v, diffrax = result["versions"], _where(result, DIFFRAX)[DIFFRAX]
        rows.append([
            f"{task} {model}", f"{diffrax['compile_seconds']:.1f}",
            f"{v[FAST]['compile_seconds']:.1f}", f"{v[FAST]['warm_compile_seconds']:.1f}",
            f"{v[PAPER]['compile_seconds']:.1f}", f"{v[TORCH]['first_seconds']:.2g}",
        ])  # fmt: skip
    head = ("task", "(b) s", "(c) s", "(c), warm cache, s", "(d) s", "(a), an early call, s")
    return ["\nTracing and compiling one update.", *_table(head, rows)]


def _memory(found: dict) -> list[str]:
    rows = []
    for task, model, result in _cases(found["tasks"]):
        v = result["versions"]
        names = (TORCH, DIFFRAX, FAST, PAPER)
        peaks = (f"{v[n]['peak_megabytes']:.0f}" if n in v else "" for n in names)
        rows.append((f"{task} {model}", *peaks))
    lines = [
        "\nBy how many megabytes the resident memory rises during an update.",
        *_table(("task", "(a)", "(b)", "(c)", "(d)"), rows),
    ]
    if "many" in found:
        memory = found["many"]["memory"]
        names = [name for name in memory if name not in ("room", "step")]
        rows = [(name, *(f"{x:.3f}" for x in memory[name])) for name in names]
        head = ("room for steps", *(str(n) for n in memory["room"]))
        lines += [
            "\nTemporary megabytes of the compiled point-cloud gradient (Dopri5) against the number "
            f"of steps it has room for. One recorded step takes {memory['step']:.4f} MB; "
            "`DiscreteAdjoint` keeps at most 128, the times and sizes of all.",
            *_table(head, rows),
        ]
    return lines


def _throughput(seeds: dict) -> float:
    apart, together = (np.array(seeds[name]) for name in ("apart", "together"))
    return float(np.median(apart / together))


def _seeds(found: dict) -> list[str]:
    if "many" not in found:
        return []
    seeds = found["many"]["seeds"]
    apart, together = (np.array(seeds[name]) for name in ("apart", "together"))
    each = apart / together
    return [
        f"\n{seeds['updates']} updates of {seeds['seeds']} seeds of the point cloud (HBNODE, (c)): "
        f"{np.median(apart):.3g} s one after the other, {np.median(together):.3g} s as one program "
        f"on {seeds['devices']} devices: {np.median(each):.3g}× [{each.min():.3g}, "
        f"{each.max():.3g}], of the least times {apart.min() / together.min():.3g}×."
    ]
