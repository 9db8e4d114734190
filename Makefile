# The work on this project, on a machine that has Python 3.11 or newer, pip and make. Every target
# makes the virtual environment that it needs.

SHELL := /bin/sh
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
# The interpreter to make the virtual environment with: the first of these that is new enough.
PYTHON ?= python3.11 python3 python3.12 python3.13 python3.14 python
# Passed on, for instance `make test PYTEST_ARGS="-k nystrom"` or `make demo DEMO_ARGS="--out /tmp/runs"`.
PYTEST_ARGS ?=
DEMO_ARGS ?=
BENCH_ARGS ?=
CODE := src tests benchmarks

.PHONY: help venv lint format test demo bench bench-core clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*##/  make \1\t/p' Makefile | expand -t 20

$(VENV)/pyvenv.cfg:
	@for python in $(PYTHON); do \
	    if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        echo "making $(VENV) with $$python"; \
	        exec $$python -m venv $(VENV); \
	    fi; \
	done; \
	echo 'hbnode needs Python 3.11 or newer; say where with `make PYTHON=/path/to/python ...`.' >&2; \
	exit 1

# One stamp for each set of extras, so that nothing is installed twice.
$(VENV)/installed-%: $(VENV)/pyvenv.cfg pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[$*]'
	@touch $@

venv: $(VENV)/installed-dev  ## the virtual environment for development, in .venv

lint: $(VENV)/installed-dev  ## ruff and pyright, which change nothing
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright --pythonpath $(BIN)/python

format: $(VENV)/installed-dev  ## what ruff can mend by itself
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

test: lint  ## lint, then the test suite
	$(BIN)/pytest $(PYTEST_ARGS)

demo: $(VENV)/installed-experiments  ## train and compare the five families on the point cloud, write runs/report.html
	$(BIN)/hbnode compare point-cloud --overwrite --seeds 10 \
	    --models NODE ANODE SONODE HBNODE GHBNODE HBNODE:fast $(DEMO_ARGS)

bench: $(VENV)/installed-bench  ## training beside torchdiffeq and plain diffrax: docs/benchmarks.md
	$(BIN)/python benchmarks/training.py $(BENCH_ARGS)

bench-core: $(VENV)/installed-bench  ## solvers and gradients beside other libraries
	$(BIN)/python benchmarks/work_precision.py
	$(BIN)/python benchmarks/gradients.py
	$(BIN)/python benchmarks/damping.py

clean:  ## removes the virtual environment, caches and builds; keeps runs/
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
