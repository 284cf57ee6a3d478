# The project's commands; `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
T ?= tests
PYTEST_ARGS ?=
# Most tests wait for servers; a file's stay together, for the stacks they share.
WORKERS ?= 2
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
RUNS ?= 3
SEED ?= 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-unit lint reformat bench bench-gate fault fault-20k fuzz schemas release \
	lock kafka-up kafka-down clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Make .venv with `assay` in it; does nothing when it is there

$(STAMP): pyproject.toml shared/pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || { echo "making $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing locked dependencies (about half a minute)"
	@$(BIN)/python -m pip install --disable-pip-version-check --progress-bar on -q \
	  --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --disable-pip-version-check -q --no-deps --no-build-isolation \
	  -e shared -e .
	@touch $(STAMP)
	@echo "ready: $(BIN)/assay --help"

demo: setup ## Score sample wallets through all services, verify each signature offline
	@$(BIN)/assay demo

test: setup ## Run every test; what needs a server starts it or says what is missing
	@-$(BIN)/python -m deploy.kafka fetch
	@-$(BIN)/python -m deploy.dev.ollama build
	@$(PYTEST) $(T) $(PYTEST_ARGS)

test-unit: setup ## Run the tests that need no server
	@$(PYTEST) tests/unit tests/property tests/contract tests/architecture $(PYTEST_ARGS)

lint: setup ## Check style and types; changes nothing
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

reformat: setup ## Mend what the style checker can mend
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: setup ## Measure everything beside its rivals (ONLY=rows, QUICK=1); build/bench.json, .svg
	@$(BIN)/python -m tests.bench $(if $(ONLY),--only $(ONLY)) $(if $(QUICK),--quick)

bench-gate: setup ## Measure the gate beside json.loads + jsonschema; build/bench-gate.json
	@$(BIN)/python tests/bench/gate_bench.py

fault: setup ## Random faults on a real Kafka, every run checked (RUNS=n SEED=s RESUME=1 ARGS="--events 20000")
	@$(BIN)/python -m tests.fault.run_faults --runs $(RUNS) --seed $(SEED) $(if $(RESUME),--resume) $(ARGS)

fault-20k: setup ## 20,000 wallet events against a misbehaving model, then the checker
	@$(BIN)/python -m tests.fault.run_20k

fuzz: setup ## Fuzz the gate for hours (FUZZ_SECONDS, default 4 hours)
	@$(BIN)/python -m tests.fuzz.gate_fuzz --seconds $(or $(FUZZ_SECONDS),14400)

schemas: setup ## Export schemas, AsyncAPI document and settings table
	@$(BIN)/python -m assay.schema_export
	@$(BIN)/python -m assay.asyncapi
	@$(BIN)/python -m assay_runtime.settings_table services/*/settings.py > SETTINGS.md

release: setup ## Freeze the contracts as they stand; a breaking change is refused
	@$(BIN)/python -m assay.release

kafka-up: setup ## Start a real Apache Kafka on this machine with the catalogue's topics
	@$(BIN)/python -m deploy.kafka up

kafka-down: setup ## Stop the Kafka that kafka-up started, and no other
	@$(BIN)/python -m deploy.kafka down

lock: ## Write requirements.lock anew: hashes, no addresses
	@$(BIN)/python -m deploy.lock

clean: ## Remove what was built; the kept data of `assay up --data` stay
	@rm -rf build $(VENV) .pytest_cache .mypy_cache .ruff_cache
