# Braidstream: every command a person needs. `make` alone lists them.
# Whatever is missing is installed here: uv, the virtual environment, and (by the commands themselves) Kafka's jars.

SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV_PYTHON ?= >=3.11
UV := $(shell command -v uv 2>/dev/null || echo .tools/bin/uv)
BIN := .venv/bin
READY := .venv/.ready
COMPILED := .venv/.compiled
TRAINERS := .venv-trainers

.PHONY: help setup plain browser demo test test-cores test-fork test-live test-log test-kafka long properties test-long test-trainers check same-bytes lock schemas docs bench sizes faults clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: $(COMPILED) ## Install uv (if missing) and the virtual environment
	@echo "ready: . $(BIN)/activate, then braid --help"

plain: ## Delete the compiled modules: Python and fastavro do the same, more slowly
	@find . -name '*.so' -not -path './.*' -delete

browser: ## Install Chromium for the visual verifier (Debian, Ubuntu; needs root)
	@if command -v chromium chromium-browser >/dev/null; then :; \
	elif command -v apt-get >/dev/null; then sudo=$$(test $$(id -u) = 0 || echo sudo); install="$$sudo apt-get install -y -q --no-install-recommends chromium"; \
	  .ci/step "installing Chromium" bash -c "$$install || { $$sudo apt-get update -q && $$install; }"; \
	else echo "install Chromium with this system's package manager, or set BRAID_VERIFIER__BROWSER"; exit 1; fi

demo: $(COMPILED) ## See it all: four tasks forked live on a real Kafka, ranked, with training rows and evidence
	@$(MAKE) --no-print-directory -s browser || echo "no Chromium: pages will be unknown, and the demo says so"
	@$(BIN)/braid demo

test: $(COMPILED) ## Lint, types and all tests, on a real Kafka and registry (below ten minutes on two processors)
	@$(MAKE) --no-print-directory -s browser || echo "no Chromium: the browser's tests will be skipped, and say so"
	@$(BIN)/python -m tests.suite check test-cores test-fork test-live test-log test-kafka

test-long: $(COMPILED) ## All that takes minutes: the tests marked long, the fault runs, more examples of every property
	@$(BIN)/python -m tests.suite --each long properties

# Parts that run side by side on one broker (tests/suite.py); alone, each of them starts its own. REPORT: a file for its results.
CORES := tests/agents tests/schemas tests/imports
FORK := tests/agents/fork tests/streams/services/test_fork.py tests/streams/test_demo.py
LIVE := tests/faults tests/streams/services/live tests/clients tests/streams/cluster
LOG := tests/streams/services/judge tests/streams/jobs/replay tests/streams/services/verifiers tests/streams/views
PYTEST := $(BIN)/pytest -p no:cacheprovider $(REPORT:%=--junitxml=%)

test-cores: $(COMPILED)
	@$(PYTEST) $(CORES) --ignore=tests/agents/fork

test-fork: $(COMPILED)
	@$(PYTEST) $(FORK)

test-live: $(COMPILED)
	@$(PYTEST) $(LIVE)

test-log: $(COMPILED)
	@$(PYTEST) $(LOG)

test-kafka: $(COMPILED)
	@$(PYTEST) $(foreach part,$(CORES) $(FORK) $(LIVE) $(LOG),--ignore=$(part))

long: $(COMPILED)
	@$(PYTEST) -m "long or faults" -s

properties: $(COMPILED)
	@$(PYTEST) -m "hypothesis and not long and not trainers" --hypothesis-profile long

test-trainers: $(TRAINERS)/.ready ## Exported files through TRL's trainers, verl's and SkyRL's readers, and torch (some 6 GB, once, in an environment of its own)
	@HF_HUB_OFFLINE=1 $(TRAINERS)/bin/pytest -m trainers -p no:cacheprovider tests/trainers

check: $(READY) ## Lint, types, import direction, schemas, the bytes of old logs
	@$(BIN)/ruff check -q .
	@$(BIN)/ruff format -q --check .
	@$(BIN)/mypy
	@$(BIN)/mypy --config-file clients/python/pyproject.toml
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/braid schemas check
	@$(MAKE) --no-print-directory -s same-bytes

same-bytes: $(COMPILED) ## Replay the stored logs of released emission versions: every byte as it was, compiled and in plain Python
	@$(BIN)/python -m tests.same_bytes.check

lock: $(READY) ## Resolve the dependencies anew, into the lock files (what develops, what runs, what trains)
	@$(UV) pip compile -q --universal --generate-hashes --no-header --all-extras --group dev pyproject.toml -o requirements-dev.lock
	@cp requirements-dev.lock requirements.lock  # what is written there is kept: what runs has the versions that are tested
	@$(UV) pip compile -q --universal --generate-hashes --no-header --all-extras pyproject.toml -o requirements.lock
	@$(UV) pip compile -q --universal --generate-hashes --no-header --all-extras --group trainers -c requirements-dev.lock pyproject.toml -o requirements-trainers.lock

schemas: $(READY) ## Write the Avro of models that changed, as the next version
	@$(BIN)/braid schemas write

docs: $(READY) ## Write the pages of the reference anew, from the code
	@$(BIN)/python -m tests.write_docs

bench: $(COMPILED) ## Benchmarks, each with its baseline beside it
	@for name in ranking contamination live export replay soak; do $(BIN)/python -m benchmarks.$$name || exit 1; done

sizes: $(READY) ## Install the core, each extra and the client into fresh environments, and print what they weigh
	@$(BIN)/python -m benchmarks.sizes

faults: $(COMPILED) ## The long fault run: workers and broker killed over thousands of rollouts
	@$(BIN)/pytest -m faults -s tests/faults

clean: ## Remove the virtual environment and caches (Kafka's jars stay in the user's cache)
	@rm -rf .venv .venv-trainers .tools .logs .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache schemas/compiled.json
	@$(MAKE) --no-print-directory -s plain

.tools/bin/uv:
	@.ci/step "installing uv into .tools" bash -c '$(PYTHON) -m venv .tools && .tools/bin/pip install -q --disable-pip-version-check uv'

$(READY): requirements-dev.lock pyproject.toml clients/python/pyproject.toml | $(filter .tools/bin/uv,$(UV))
	@.ci/step "making .venv" $(UV) venv -q --allow-existing --python '$(VENV_PYTHON)' .venv
	@.ci/step "installing the dependencies" $(UV) pip sync -q --compile-bytecode --python $(BIN)/python --require-hashes requirements-dev.lock
	@BRAID_COMPILED=no .ci/step "installing braid" $(UV) pip install -q --python $(BIN)/python --no-deps -e . -e clients/python
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m compileall -q schemas agents streams
	@touch $@

# What is tested is what is shipped: compiled, from the sources as they are now. Tests refuse modules compiled from others.
$(COMPILED): $(READY) hatch_build.py $(shell find schemas agents streams -name '*.py' -o -name '*.c')
	@$(BIN)/python hatch_build.py
	@touch $@

$(TRAINERS)/.ready: requirements-trainers.lock tests/trainers/readers.txt pyproject.toml | $(filter .tools/bin/uv,$(UV))
	@echo "installing torch and TRL into $(TRAINERS) (some 6 GB) ..."
	@$(UV) venv -q --allow-existing --python '$(VENV_PYTHON)' $(TRAINERS)
	@$(UV) pip sync -q --compile-bytecode --python $(TRAINERS)/bin/python --require-hashes requirements-trainers.lock
	@$(UV) pip install -q --compile-bytecode --python $(TRAINERS)/bin/python --no-deps -r tests/trainers/readers.txt
	@$(UV) pip install -q --python $(TRAINERS)/bin/python --no-deps -e . -e clients/python
	@touch $@
