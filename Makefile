# One door for every job; `make help` lists them. CI calls these targets and nothing else.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
WORKERS ?= 2
INTEROP := tests/interop tests/contract tests/outside

.DEFAULT_GOAL := help
.PHONY: help demo setup docs format lint types layers unit test test-spark faults search fuzz interop oracle bench bench-spark clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "downrange needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(STAMP) ## The whole system in a few minutes: cluster, producer, consumer group, Spark pipeline, chart (needs Java 17)
	@$(BIN)/python -m examples.demo $(DEMO)

setup: $(STAMP) ## Create .venv and install downrange with its development tools

format: $(STAMP) ## Rewrite the sources in the house format
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format .

lint: $(STAMP) ## Check format and lint rules (ruff)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP) ## Check types (mypy, strict)
	$(BIN)/mypy

layers: $(STAMP) ## Check which package may import which (import-linter)
	$(BIN)/lint-imports

unit: $(STAMP) ## Run unit, golden, tidy and short fault tests
	$(BIN)/pytest -q -n $(WORKERS) --dist loadgroup

test: lint types layers unit ## Everything a commit must pass: lint, types, layers, all fast tests

faults: $(STAMP) ## The long form of the fault tests (an hour or more); SEEDS=1000..2000 runs these seeds of the simulation instead and can be interrupted
ifdef SEEDS
	PYTHONPATH=tests $(BIN)/python -m simulation power --seeds $(SEEDS) --resume
	PYTHONPATH=tests $(BIN)/python -m simulation cluster --seeds $(SEEDS) --resume
	PYTHONPATH=tests $(BIN)/python -m simulation hostile --seeds $(SEEDS) --resume
else
	$(BIN)/pytest -q -n $(WORKERS) -m long tests/faults
endif

test-spark: $(STAMP) ## All tests in a local Spark, the slow ones too (needs Java 17)
	$(BIN)/pytest -q -m 'spark and not interop' tests/spark tests/docs

search: $(STAMP) ## Run the property tests on new random examples; `make test` takes the same ones each time
	$(BIN)/pytest -q -n $(WORKERS) --dist loadgroup --hypothesis-profile search -m 'hypothesis and not (long or interop or spark)' tests

fuzz: $(STAMP) ## Feed random bytes to every decoder, FUZZ_SECONDS=60 by default
	$(BIN)/python scripts/fuzz.py --seconds $${FUZZ_SECONDS:-60}

interop: $(STAMP) ## Exchange files with the real Apache RocketMQ, serve its clients, use the built wheel from outside (needs a JDK 11+, Maven; Go if there)
	@command -v java >/dev/null && command -v javac >/dev/null || { echo "make interop needs a JDK (11 or newer): install one, for example 'apt-get install openjdk-17-jdk-headless'"; exit 1; }
	@command -v mvn >/dev/null || { echo "make interop needs Maven: install it, for example 'apt-get install maven'"; exit 1; }
	$(BIN)/pytest -q -m interop $(INTEROP) || { echo "what failed beside a foreign system is run once more; it counts if it fails again"; \
	  $(BIN)/pytest -q -m interop --last-failed --last-failed-no-failures none $(INTEROP); }

oracle: $(STAMP) ## Run the tests of clients, foreign and ours, and of mqadmin against Apache's own servers: are the tests right?
	DOWNRANGE_ORACLE=1 $(BIN)/pytest -q -m interop tests/interop/test_java_clients.py tests/interop/test_go_client.py tests/interop/test_python_producer.py tests/interop/test_mqadmin.py tests/contract tests/spark

bench: $(STAMP) ## Measure the store, then broker and client beside the real Apache RocketMQ (needs a JDK and Maven; half an hour)
	$(BIN)/python benchmarks/store.py
	$(BIN)/python benchmarks/broker.py
	$(BIN)/python benchmarks/client.py

bench-spark: $(STAMP) ## Measure the Spark source, sink and store files beside the Kafka connector (needs Java 17 and Maven; ten minutes)
	$(BIN)/python benchmarks/spark.py

docs: $(STAMP) ## Build the documentation as a site in build/site; a broken link fails
	@$(BIN)/python -c 'import material' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "open build/site/index.html"

clean: ## Remove what the other targets made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist
