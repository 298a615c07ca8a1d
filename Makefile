# Every task of the house. `make help` (the default) lists them; nothing here needs root.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
GENERATOR := .cache/venv-generator
PROTOS := $(wildcard proto/admission/*/*.proto)

QUICK := -m "not real and not slow"
CORE_TESTS := tests/admission/core tests/contracts tests/issues tests/properties
OTHER_TESTS := tests $(CORE_TESTS:%=--ignore=%)
# JUNIT=PATH writes PATH-core.xml and PATH-rest.xml
junit = $(if $(JUNIT),--junitxml=$(JUNIT)-$(1).xml)

.DEFAULT_GOAL := help
.PHONY: help setup demo test check format proto docs baseline bench lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.installed ## Make .venv from the locked versions (the others do it when needed)

demo: setup ## Engine stand-in, overload from a real trace, sidecar and dashboard on this machine
	$(BIN)/tidegate demo $(ARGS)

test: setup ## Run the tests: the core with branch coverage, which must be whole, then all others on two processes
	@status=0; \
	$(BIN)/python -m pytest $(QUICK) $(CORE_TESTS) --cov=admission.core --cov-report= $(call junit,core) $(ARGS) || status=1; \
	$(BIN)/coverage report --skip-covered --show-missing --fail-under=100 || status=1; \
	$(BIN)/python -m pytest $(QUICK) $(OTHER_TESTS) -n 2 --dist worksteal $(call junit,rest) $(ARGS) || status=1; \
	exit $$status

check: setup $(GENERATOR)/.installed ## Format, lint, types, import rules, protocol, generated code
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy .
	$(BIN)/lint-imports --no-logo
	$(BIN)/buf lint proto
	$(BIN)/buf breaking proto --against proto/baseline.binpb
	scripts/generate.sh --check

format: setup ## Rewrite the sources the way `check` wants them
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

proto: $(GENERATOR)/.installed ## Generate admission/v1 and admission/wire from proto/
	scripts/generate.sh

docs: setup ## Write the table of settings into docs/configuration.md
	$(BIN)/python scripts/write_settings.py

baseline: setup ## After a release: what `check` holds later changes of the protocol against
	$(BIN)/buf build proto -o proto/baseline.binpb

bench: setup ## Measure throughput, latency and memory of the sidecar; prints a table
	$(BIN)/python -m benchmarks $(ARGS)

lock: $(GENERATOR)/.installed ## Resolve requirements/*.txt anew (needs the package index)
	scripts/lock.sh

clean: ## Remove environments, caches and build results
	rm -rf $(VENV) .cache build dist *.egg-info .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/.installed: requirements/dev.txt pyproject.toml
	scripts/setup.sh "$(PYTHON)" $(VENV) requirements/dev.txt
	$(BIN)/python -m pip install -qq --no-deps --no-build-isolation --editable .
	@touch $@

$(GENERATOR)/.installed: requirements/generator.txt
	scripts/setup.sh "$(PYTHON)" $(GENERATOR) requirements/generator.txt
	@touch $@
