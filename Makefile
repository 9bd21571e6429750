# The commands of the README. `make demo` and `make test` are all that a newcomer needs.

SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DOCS ?=
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate --upgrade

.PHONY: help install demo up test bench bench-quick try-model fmt lock
.DEFAULT_GOAL := help

help:
	@echo "make demo [DOCS='a.txt b.txt']  classify real documents, everything embedded"
	@echo "make up                         run the service on this machine"
	@echo "make test                       every check and the whole test suite"
	@echo "make bench | bench-quick         the benchmark beside its peers, about 15 or 3 minutes"
	@echo "make try-model                  extract and classify ten real documents with a small model of this machine"
	@echo "make install | fmt | lock       the environment | format the code | renew the lock files"

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or newer is needed; '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || echo missing). Name another: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "Python cannot make a virtual environment here; on Debian and Ubuntu run: apt-get install python3-venv" >&2; exit 1; }
	@touch $@

# Installs what the lock names, hash by hash. The project itself comes from this folder, built with what the lock brought
# and not in a sandbox that would choose versions anew.
$(VENV)/.runtime: $(VENV)/.made requirements.lock pyproject.toml
	@echo "installing what the service needs ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime requirements-dev.lock
	@echo "installing what the checks need ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r requirements-dev.lock
	@touch $@

install: $(VENV)/.runtime

demo: $(VENV)/.runtime
	@$(BIN)/despacho demo $(DOCS)

up: $(VENV)/.runtime
	@$(BIN)/despacho up

test: $(VENV)/.dev
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tests.support.gate

bench: $(VENV)/.dev
	@$(BIN)/python -m bench

bench-quick: $(VENV)/.dev
	@$(BIN)/python -m bench --quick

# A model server in an environment of its own (.venv-model); takes ten to twenty minutes, some of them to compile.
try-model: $(VENV)/.dev
	@$(BIN)/python -m bench.try_model

fmt: $(VENV)/.dev
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

# No address of a package index is written, so the lock is good wherever the packages come from.
lock: $(VENV)/.dev
	@$(COMPILE) pyproject.toml --extra agents --extra build --output-file requirements.lock
	@$(COMPILE) pyproject.toml --extra agents --extra build --extra dev --constraints requirements.lock --output-file requirements-dev.lock
