# Busway. `make run` and `make test` set up everything they need; `make help` lists the verbs.
PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest

export PYTHON

.PHONY: help setup setup-spark run test test-quick test-sdk test-postgres test-spark lint format pages bench bench-compare bench-spark chaos soak dist clean

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 15

setup: ## install Busway and the tools of development into .venv, compile the hot modules where a C compiler is there
	@scripts/setup.sh

setup-spark: ## install Spark with what its formats need (about 1 GB)
	@scripts/install.sh serve spark

run: ## install what serving needs and start the bus on embedded stores in ./data
	@scripts/run.sh

test: ## everything: what the README promises, the model, wire and fault tests, Spark's jobs
	@scripts/run_tests.sh

test-quick: ## a minute: unit, wire and store tests that take no time, on the Python sources
	@scripts/install.sh serve develop
	@BUSWAY_PURE=1 $(PYTEST) -n 2 -q -m "not slow" tests/unit tests/wire tests/store_contract

test-sdk: ## programs in Go, Java, JavaScript and Rust against real servers; what is missing here is skipped (ARGS="-k go")
	@scripts/install.sh serve develop
	@$(PYTEST) -q -rsxf tests/sdk $(ARGS)

test-postgres: ## all about stores in PostgreSQL: contract, servers killed, paused and cut off, SDKs
	@scripts/install.sh serve develop
	@$(PYTEST) -n 2 --dist worksteal -q -k "postgres or cluster" tests/unit/store tests/unit/cluster tests/upgrade \
		tests/store_contract tests/fault tests/conformance tests/server $(ARGS)

test-spark: setup setup-spark ## Spark's formats and jobs against real servers, also what make test leaves out
	@$(PYTEST) -n 3 --dist loadfile --no-loadscope-reorder -q tests/spark

lint: ## formatting, ruff, mypy --strict, storeys (import-linter)
	@scripts/install.sh serve develop spark
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: ## what lint would complain about and can be mended by itself
	@scripts/install.sh serve develop
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

pages: setup ## write docs/rules.md, docs/proofs.md, COMPATIBILITY.md, docs/settings.md and docs/timers.md anew from tests and code
	@$(BIN)/python scripts/rules.py
	@$(BIN)/python scripts/compatibility.py
	@$(BIN)/python scripts/settings.py
	@$(BIN)/python -m tests.timers

bench: setup ## measure, against RabbitMQ and Artemis in the same run (python -m benchmarks.run --help for parts)
	@$(BIN)/python -m benchmarks.run

bench-compare: setup ## what a change costs, against a commit: make bench-compare BASE=HEAD~1 (ARGS=--quick, ARGS=--help)
	@$(BIN)/python -m benchmarks.compare "$(BASE)" $(ARGS)

chaos: setup ## kill, cut, crash at every write, fill, damage, fuzz: minutes (ARGS=--long for more)
	@$(BIN)/python -m tests.chaos.run $(ARGS)

soak: setup ## the same for hours, and connections held for one: make soak HOURS=8
	@$(BIN)/python -m tests.chaos.run --long --hours $(or $(HOURS),1)

bench-spark: setup setup-spark ## measure the pipeline on Spark (python -m benchmarks.spark --help for parts)
	@$(BIN)/python -m benchmarks.spark $(ARGS)

dist: ## build wheels: dist/busway-*.whl with compiled modules for this Python and platform, dist/pure for all others
	@scripts/dist.sh

clean: ## remove what setup made; your data stays
	@rm -rf .venv build dist src/busway/_compiled node_modules
