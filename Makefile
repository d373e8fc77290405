# Every target works by itself on a fresh clone: it makes .venv, installs what is pinned, and runs.
PYTHON ?= python3
BIN := .venv/bin
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo test stress lint bench clean

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile

demo: .venv/installed  ## the six usual methods on one network and the bundled digits, live, and a report in HTML
	$(BIN)/evodrop compare

test: .venv/installed  ## the whole test suite, with the examples in the docstrings
	$(BIN)/python -m pytest -n 2 --dist worksteal

stress: .venv/installed  ## runs and commands killed at 40 random moments each, 10,000 mutated files per format: hours
	EVODROP_STRESS=1 $(BIN)/python -m pytest -n 2 --dist worksteal tests/stress

lint: .venv/installed  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/installed  ## ours against the peers in one run: prints a table, writes JSON
	$(BIN)/python benchmarks/dropout.py
	$(BIN)/python benchmarks/linear.py
	$(BIN)/python benchmarks/networks.py
	$(BIN)/python benchmarks/zoo.py
	$(BIN)/python benchmarks/scaling.py

.venv/installed: pyproject.toml constraints.txt
	@echo "installing the pinned versions into .venv: a minute or two, some 2.5 GB"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

clean:  ## forget .venv
	rm -rf .venv
