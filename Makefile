# Every target works by itself on a fresh clone: it makes .venv, installs what is pinned, and runs.
PYTHON ?= python3
BIN := .venv/bin
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_BUILD_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo test stress integration lint bench docs docs-serve dist clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile

demo: .venv/installed  ## the six usual methods on one network and the bundled digits, live, and a report in HTML
	$(BIN)/evodrop compare

test: .venv/installed  ## the whole test suite, with the examples in the docstrings
	$(BIN)/python -m pytest -n 2 --dist worksteal

stress: .venv/installed  ## runs and commands killed at 40 random moments each, 10,000 mutated files per format: hours
	EVODROP_STRESS=1 $(BIN)/python -m pytest -n 2 --dist worksteal tests/stress

integration: build/integration/installed  ## models of timm, transformers and other libraries, in an environment of their own
	build/integration/bin/python -m pytest -W default tests/integration

lint: .venv/installed  ## style, types, spelling, workflows and packaging
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell
	$(BIN)/zizmor --offline --quiet .
	$(BIN)/repo-review --show err .

bench: .venv/installed  ## ours against the peers in one run: prints a table, writes JSON
	$(BIN)/python benchmarks/dropout.py
	$(BIN)/python benchmarks/linear.py
	$(BIN)/python benchmarks/networks.py
	$(BIN)/python benchmarks/zoo.py
	$(BIN)/python benchmarks/scaling.py

docs: .venv/installed  ## the site, in docs/_build/html; a warning or a broken link is an error
	$(BIN)/python -m sphinx --builder html --fail-on-warning --keep-going --nitpicky docs docs/_build/html

docs-serve: docs  ## the same, shown at http://localhost:8000
	$(BIN)/python -m http.server --bind localhost --directory docs/_build/html 8000

# Tests of the sdist that read files of the tree; all others are collected.
FILES := tests/test_release.py tests/test_results.py tests/test_docs.py tests/test_imports.py

dist: .venv/installed  ## wheel and sdist in dist/; the wheel is tried in an empty environment, the sdist by its own tests
	rm -rf dist build/empty build/sdist
	$(BIN)/python -m build --outdir dist
	$(PYTHON) -m venv build/empty
	build/empty/bin/python -m pip install --quiet dist/*.whl
	cd build && empty/bin/python -W error ../tests/installed.py ../dist/*.whl
	mkdir build/sdist && tar -xzf dist/*.tar.gz -C build/sdist --strip-components 1
	cd build/sdist && PYTHONPATH=src ../../$(BIN)/python -m pytest --quiet --collect-only >collected.txt
	cd build/sdist && PYTHONPATH=src ../../$(BIN)/python -m pytest --quiet -n 2 $(FILES)

.venv/installed: pyproject.toml constraints.txt
	@echo "installing the pinned versions into .venv: a minute or two, some 2.5 GB"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet 'pip>=25.1' # the first that reads dependency groups
	$(BIN)/python -m pip install --quiet --group dev --editable '.[lab,dask]'
	touch $@

build/integration/installed: pyproject.toml constraints.txt
	@echo "installing timm, transformers and others into build/integration: some minutes"
	$(PYTHON) -m venv build/integration
	build/integration/bin/python -m pip install --quiet --editable '.[torch]' \
		pytest transformers peft accelerate lightning skorch pillow huggingface_hub safetensors
	build/integration/bin/python -m pip install --quiet --no-deps timm # torchvision may have no build: tests stand in
	touch $@

clean:  ## forget .venv, and what was built
	rm -rf .venv build dist docs/_build docs/auto_gallery docs/api/generated
