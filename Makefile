# Busway. `make run` and `make test` set up everything they need; `make help` lists the verbs.
PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest

.PHONY: help setup run test test-quick lint format pages bench chaos soak clean setup-spark test-spark bench-spark

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: .venv/.installed ## install into .venv and compile the hot modules where a C compiler is there
	@$(BIN)/python scripts/compile_hot_modules.py

.venv/.installed: pyproject.toml scripts/install.sh
	@scripts/install.sh "$(PYTHON)"
	@touch $@

run: setup ## start the bus on embedded stores in ./data
	@$(BIN)/busway serve --data data

test: .venv/.installed setup-spark ## everything: what the README promises, the model, wire and fault tests, Spark's jobs
	@scripts/run_tests.sh

test-quick: setup ## unit, wire and store tests, pure Python
	@BUSWAY_PURE=1 $(PYTEST) -n 2 -q tests/unit tests/wire tests/store_contract

lint: .venv/.installed setup-spark ## formatting, ruff, mypy --strict, storeys (import-linter)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: .venv/.installed ## what lint would complain about and can be mended by itself
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

pages: setup ## write COMPATIBILITY.md and docs/settings.md anew from tests and code
	@$(BIN)/python scripts/compatibility.py
	@$(BIN)/python scripts/settings.py

bench: setup ## measure, against RabbitMQ in the same run (python -m benchmarks.run --help for parts)
	@$(BIN)/python -m benchmarks.run

chaos: setup ## kill, cut, crash at every write, fill, damage, fuzz: minutes (ARGS=--long for more)
	@$(BIN)/python -m tests.chaos.run $(ARGS)

soak: setup ## the same for hours: make soak HOURS=8
	@$(BIN)/python -m tests.chaos.run --hours $(or $(HOURS),1)

setup-spark: .venv/.spark-installed ## what `setup` does, and Spark with what its formats need (about 1 GB)

.venv/.spark-installed: pyproject.toml .venv/.installed
	@$(BIN)/python -m pip --quiet --disable-pip-version-check install --editable ".[spark,spark-connect]"
	@touch $@

bench-spark: setup setup-spark ## measure the pipeline on Spark (python -m benchmarks.spark --help for parts)
	@$(BIN)/python -m benchmarks.spark $(ARGS)

test-spark: setup setup-spark ## Spark's formats and jobs against real servers, also what make test leaves out
	@$(PYTEST) -n 3 --dist loadfile --no-loadscope-reorder -q tests/spark

clean: ## remove what setup made; your data stays
	@rm -rf .venv build src/busway/_compiled node_modules
