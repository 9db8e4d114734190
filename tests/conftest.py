"""A strict session: float64, no silent promotion of dtypes or ranks."""

import os
import pathlib

import jax
import pytest

# Hundreds of small programs are compiled and run once: compile them fast, not well. XLA reads the
# variable when the first program is compiled, here and in the processes that tests start.
FAST_TO_COMPILE = "--xla_cpu_use_fusion_emitters=false"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FAST_TO_COMPILE}".strip()

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_disable_most_optimizations", True)
jax.config.update("jax_num_cpu_devices", 2)  # as the command line has one for each core


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
