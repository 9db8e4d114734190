"""A strict session: float64, no silent promotion of dtypes or ranks."""

import pathlib

import jax
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
# Hundreds of small programs are compiled and run once: compile them fast, not well.
jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture(autouse=True, scope="module")
def _free_compiled_programs():
    """Hundreds of small programs are compiled; drop those of one file before the next."""
    yield
    jax.clear_caches()


@pytest.fixture(scope="session")
def golden_page(tmp_path_factory):
    """The report of the golden runs."""
    from hbnode.experiments import paper_settings  # after the settings above
    from hbnode.report import write_report

    path = tmp_path_factory.mktemp("page") / "report.html"
    write_report(pathlib.Path(__file__).parent / "golden", path, paper=paper_settings())
    return path
