# Everything starts here; a fresh machine needs Python 3.11 or newer, nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Installed with byte code: importing the libraries costs seconds a process without it.
INSTALL := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pip install --quiet --constraint constraints.txt

.PHONY: setup quickstart test test-slow test-serve test-cluster check

setup: $(VENV)/installed

$(VENV)/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable '.[dev]'
	touch $@

# The whole tour on the embedded example: no GPU, no network, a few minutes.
quickstart: setup
	$(BIN)/tabiflow plan sweeps/quickstart.yaml
	$(BIN)/tabiflow sweep sweeps/quickstart.yaml
	$(BIN)/tabiflow select sweeps/quickstart.yaml
	$(BIN)/tabiflow confirm sweeps/quickstart.yaml
	$(BIN)/tabiflow report sweeps/quickstart.yaml -o .tabiflow/quickstart-report

# Two processes that share nothing but what the package itself shares between processes.
test: setup
	$(BIN)/python -m pytest -n 2 --dist worksteal

# vLLM's CPU build, which other versions of some libraries go with, in an environment of its own.
SERVE ?= .venv-serve

$(SERVE)/installed: requirements-serve.txt pyproject.toml
	test -x $(SERVE)/bin/python || $(PYTHON) -m venv $(SERVE)
	env -u PYTHONDONTWRITEBYTECODE $(SERVE)/bin/python -m pip install --quiet --no-deps --requirement requirements-serve.txt
	$(SERVE)/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

test-serve: $(SERVE)/installed
	$(SERVE)/bin/python -m pytest -m serve tests/test_vllm.py

test-slow: setup
	$(BIN)/python -m pytest -m slow

# Real hosts, lost one after another: HOSTS_TOOL makes them. Without one it says so.
test-cluster: setup
	$(BIN)/python benchmarks/cluster_check.py

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
