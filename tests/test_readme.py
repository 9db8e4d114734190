"""The examples of the README run as they stand, each by itself, by `python -c`."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

README = pathlib.Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)


def test_there_are_examples():
    assert len(EXAMPLES) >= 3


@pytest.mark.parametrize("index", range(len(EXAMPLES)))
def test_example(index):
    env = os.environ | {"JAX_PLATFORMS": "cpu"}
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", EXAMPLES[index]],
        capture_output=True, text=True, env=env, timeout=300,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip()
