"""The shape of the package: which way imports point, and what is public."""

import ast
import pathlib
import types

import hbnode

SOURCE = pathlib.Path(hbnode.__file__).parent
PUBLIC = {
    "ANODE", "GHBNODE", "HBNODE", "NODE", "SONODE", "Damping", "Restoring",
    "Checkpointed", "ContinuousAdjoint", "DiscreteAdjoint",
    "Nystrom4", "Nystrom5", "Nystrom6", "Nystrom8", "solve",
}  # fmt: skip


def imports(path):
    """The modules that a file imports, absolute, wherever in the file the import stands."""
    package = ["hbnode", *path.relative_to(SOURCE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            yield ".".join([*base, *([node.module] if node.module else [])])


def files(*folders):
    return [path for folder in folders for path in (SOURCE / folder).rglob("*.py")]


def test_public_names():
    names = {n for n, x in vars(hbnode).items() if not isinstance(x, types.ModuleType)}
    assert {name for name in names if not name.startswith("_")} == PUBLIC
    for name in PUBLIC:
        assert getattr(hbnode, name).__doc__, name


def test_dynamics_knows_no_solver():
    for path in files("dynamics"):
        for module in imports(path):
            assert not module.startswith(("hbnode.solve", "hbnode.theory", "diffrax")), path


def test_only_solve_imports_diffrax():
    for path in SOURCE.rglob("*.py"):
        if "solve" not in path.relative_to(SOURCE).parts:
            assert not any(module.startswith("diffrax") for module in imports(path)), path


def test_solve_knows_dynamics_only():
    allowed = ("hbnode.solve", "hbnode.dynamics")
    for path in files("solve"):
        for module in imports(path):
            assert not module.startswith("hbnode") or module.startswith(allowed), (path, module)


def test_the_core_needs_only_its_own_dependencies():
    allowed = {
        "hbnode", "jax", "equinox", "diffrax", "jaxtyping", "numpy", "__future__", "abc",
        "collections", "dataclasses", "fractions", "functools", "math", "typing", "warnings",
    }  # fmt: skip
    core = [SOURCE / "__init__.py", SOURCE / "theory.py", *files("dynamics", "solve", "models")]
    for path in core:
        for module in imports(path):
            assert module.split(".")[0] in allowed, (path, module)


def test_modules_are_small():
    for path in SOURCE.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 400, path


def test_the_report_knows_files_only():
    """Run folders, `runs` and `summary`: no model, no task, nothing that computes with jax."""
    allowed = ("hbnode.report", "hbnode.runs", "hbnode.summary")
    outside = ("jax", "equinox", "diffrax", "optax", "torch")
    for path in [*files("report"), SOURCE / "summary.py", SOURCE / "runs.py"]:
        for module in imports(path):
            assert not module.startswith("hbnode") or module.startswith(allowed), (path, module)
            assert module.split(".")[0] not in outside, (path, module)
