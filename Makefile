# `make pretrain` and `make test` need Python 3.11 to 3.13 and make; everything else they set up themselves in .venv.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV ?= .venv
BIN := $(VENV)/bin
export TF_CPP_MIN_LOG_LEVEL ?= 2

.PHONY: help setup test test-slow lint pretrain clean

help:
	@echo "make pretrain [CORPUS=path]   build a vocabulary and TFRecords from text, pre-train a small BERT, evaluate it"
	@echo "                              (SHORT=1 only tries all steps, in two minutes)"
	@echo "make test                     run the tests"
	@echo "make test-slow                run the tests marked slow"
	@echo "make lint                     check the style with ruff"
	@echo "make setup                    only create $(VENV) with everything that the others need"

setup: $(VENV)/.installed

# The first interpreter that runs and is new enough; version managers leave names that do not run.
$(VENV)/.installed: setup.cfg pyproject.toml
	@python=""; for candidate in $(PYTHON) python3.11 python3.12 python3.13 python3 python; do \
	  if $$candidate -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1; then \
	    python=$$candidate; break; fi; done; \
	if [ -z "$$python" ]; then \
	  echo "tf_bert needs Python 3.11, 3.12 or 3.13 and found none; install one, or say make PYTHON=/path/to/python" >&2; exit 1; fi; \
	echo "Setting up $(VENV) with $$($$python --version) (TensorFlow is 600 MB; the first time takes a minute or more)"; \
	$$python -m venv $(VENV) || { echo "python -m venv failed; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

pretrain: setup
	@$(BIN)/python tools/pretrain_demo.py $(if $(CORPUS),--corpus='$(CORPUS)') $(if $(SHORT),--short) $(ARGS)

test: setup
	@$(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

test-slow: setup
	@$(BIN)/python -m pytest -m slow $(ARGS)

lint: setup
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

clean:
	rm -rf $(VENV) build dist *.egg-info
