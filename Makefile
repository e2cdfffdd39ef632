# `make demo` and `make test` set up what they need from nothing but Python and make. `make help` lists the rest.

PYTHON ?= python3
VENV ?= .venv
OUT ?= demo-out
# Processes that tests run in; two is what a small machine has.
JOBS ?= 2

BIN := $(VENV)/bin
RUN := $(BIN)/python -m artifactkit
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help setup demo check lint test test-heavy test-full bench fixtures docs clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' Makefile

# What an environment holds is marked by a file in it, which is older than the files that say what it should hold
# when they have changed.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "artifactkit needs Python 3.11 or newer, PYTHON=... says which")'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/core: pyproject.toml constraints.txt | $(BIN)/python
	@echo 'setting up $(VENV) (a minute or so)'
	@$(PIP) -e .
	@touch $@

$(VENV)/dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo 'setting up $(VENV) for development and tests (a few minutes: torch is large)'
	@$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/core

setup: $(VENV)/dev ## Make the virtual environment for development

demo: $(VENV)/core ## Run the main job: a pickle checkpoint becomes safetensors, checked
	@rm -f $(OUT)/trainer.safetensors $(OUT)/trainer.safetensors.intoto.jsonl
	@$(BIN)/python fixtures/make.py $(OUT) --only trainer.ckpt
	@printf '\n$$ artifactkit inspect $(OUT)/trainer.ckpt\n'
	@$(RUN) inspect $(OUT)/trainer.ckpt
	@printf '\n$$ artifactkit convert $(OUT)/trainer.ckpt $(OUT)/trainer.safetensors\n'
	@$(RUN) convert $(OUT)/trainer.ckpt $(OUT)/trainer.safetensors
	@printf '\n$$ artifactkit verify $(OUT)/trainer.safetensors --against $(OUT)/trainer.ckpt\n'
	@$(RUN) verify $(OUT)/trainer.safetensors --against $(OUT)/trainer.ckpt

check: lint test ## Lint, types and the quick tests

lint: $(VENV)/dev ## Style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: $(VENV)/dev ## The tests that need no network and no large files
	$(BIN)/python -m pytest -n $(JOBS)

test-heavy: $(VENV)/dev ## The other tests only: real files from the package index, large files, fresh environments
	$(BIN)/python -m pytest -n $(JOBS) -m 'real or slow'

test-full: $(VENV)/dev ## All tests
	$(BIN)/python -m pytest -n $(JOBS) -m ''

bench: $(VENV)/dev ## Measure speed and memory against peers, as ratios
	@for file in benchmarks/bench_*.py; do $(BIN)/python $$file || exit 1; done

fixtures: $(VENV)/core ## Make the files that tests work on, and compare them with their manifest
	$(BIN)/python fixtures/make.py fixtures/out --check

docs: $(VENV)/dev ## Write the reference and the sessions of the documentation anew, as the program answers now
	for file in docs/make_*.py; do $(BIN)/python $$file || exit 1; done
	PYTHONPATH=fixtures $(BIN)/python tests/sessions.py README.md docs/*.md

clean: ## Remove what the targets have made
	rm -rf $(VENV) $(OUT) fixtures/out .mypy_cache .ruff_cache .pytest_cache .hypothesis
