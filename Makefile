# Two commands do everything on a fresh machine: `make run` and `make test`.
.DEFAULT_GOAL := help
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q install -c constraints.txt
# As pip does with what it copies: half of a start would be spent on compiling otherwise.
COMPILE := $(BIN)/python -m compileall -q src
# A module that has moved leaves its compiled twin behind, and Python would go on importing that.
FORGET := find src -name '*.so' -delete
# What is compiled must be installed again when it changes: Python would go on with what it was before.
COMPILED := setup.py $(shell grep -oE 'src/[a-z_/]+\.py' setup.py)
ARGS ?=
# A start of Spark, of which there are many, takes half of the time with them.
ARCHIVES := $(BIN)/python -m tools.class_archives
# Half of the time a test waits: two files at a time take 12 minutes on two cores where one at a time took 20.
SIDE_BY_SIDE := -n 2 --dist loadfile --no-loadscope-reorder

# The first Python that is new enough; PYTHON=... chooses another.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo $$p; break; }; done)

# Said here, because what fails of a Python that cannot be run would be blamed on its venv module.
CHECK_PYTHON = if ! $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	echo "Barnabas needs Python 3.11 or newer, and $(if $(PYTHON),$(PYTHON) cannot be run as one,none was found): install it, or say make PYTHON=/path/to/python." >&2; exit 1; fi

# Beside the newest PySpark, which `make test` has: the last of each line that still works, in an environment of its own.
SPARK_VERSIONS ?= 4.1.4 4.2.1
SPARK_TESTS := tests/spark tests/pipelines tests/streams tests/connect

.PHONY: help run demo test test-ci test-again test-fast test-cluster test-spark-versions soak soak-cluster check format bench compile install clean

help:  ## List what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | column -t -s '|'

run: $(VENV)/.core  ## Set up, then start a broker on 127.0.0.1:9092 (ARGS="--listen ... --data ...")
	@exec $(BIN)/barnabas up $(ARGS)

demo: $(VENV)/.spark  ## Set up, then see a pipeline at work: broker, visitors, Spark (needs Java 17+)
	@exec $(BIN)/barnabas demo $(ARGS)

test: $(VENV)/.all  ## Set up, then run all tests, the fast ones first (ARGS="-k ...")
	@echo "Testing ..."
	@$(ARCHIVES)
	@$(BIN)/python -m pytest $(SIDE_BY_SIDE) $(ARGS)

# Only after a run that came to its end (1: tests failed): after any other some tests were not run.
test-ci: $(VENV)/.all  ## As CI does: all tests, and those marked `shares_cores` that failed once more
	@echo "Testing ..."
	@$(ARCHIVES)
	@$(BIN)/python -m pytest $(SIDE_BY_SIDE) $(ARGS) || { [ $$? -eq 1 ] && $(MAKE) --no-print-directory test-again; }

test-again: $(VENV)/.all  ## The tests that failed the last time, one after the other, if all are marked `shares_cores`
	@echo "Testing what failed once more, alone ..."
	@$(BIN)/python -m pytest --last-failed --last-failed-no-failures none --only-sharing-cores $(ARGS)

test-fast: $(VENV)/.all  ## Only the tests that take moments
	@$(BIN)/python -m pytest -m "not slow and not java" $(ARGS)

test-spark-versions: $(SPARK_VERSIONS:%=test-spark-%)  ## The tests of Spark with older ones, with Delta and Iceberg (SPARK_VERSIONS="4.1.4")

test-spark-%: .cache/pyspark-%/.all
	@echo "Testing with PySpark $* ..."
	@.cache/pyspark-$*/bin/python -m pytest $(SIDE_BY_SIDE) -p no:cacheprovider $(SPARK_TESTS) $(ARGS)

# Every suite that needs no more than an address; those that look into a broker or restart it stay with one.
CLUSTER_TESTS := tests/other_clients tests/client_with_broker tests/groups $(SPARK_TESTS)
test-cluster: $(VENV)/.all  ## The tests of clients, groups and Spark with three brokers in place of one
	@echo "Testing with three brokers ..."
	@BARNABAS_TEST_BROKERS=3 $(BIN)/python -m pytest -p no:cacheprovider $(CLUSTER_TESTS) $(ARGS)

soak: $(VENV)/.all  ## The long ones: more rounds of kill -9, more seeds, more mutated frames
	@BARNABAS_SOAK=1 $(BIN)/python -m pytest -m slow --timeout 7200 $(ARGS)

soak-cluster: $(VENV)/.all  ## Faults of a cluster for hours, with a report in build/ (ARGS="--hours 8 --seed 7")
	@$(BIN)/python -m tests.chaos.soak $(ARGS)

check: $(VENV)/.all  ## Lint, types, layers
	@echo "Linting ..." && $(BIN)/ruff check && $(BIN)/ruff format --check
	@echo "Checking types ..." && $(BIN)/mypy
	@echo "Checking layers ..." && $(BIN)/lint-imports

format: $(VENV)/.all  ## Let ruff lay out the code
	@$(BIN)/ruff check --fix -q; $(BIN)/ruff format -q

bench: $(VENV)/.all  ## Measure beside Apache Kafka (needs Java 17+; ARGS="--quick")
	@$(BIN)/python -m bench $(ARGS)

compile: $(VENV)/.all  ## Compile what `setup.py` names, in place
	@$(BIN)/python setup.py -q build_ext --inplace

install: $(VENV)/.all  ## Everything into .venv: extras, tests, benchmarks

clean:  ## Remove what was set up and downloaded (not your data)
	rm -rf $(VENV) .cache build src/*.egg-info
	find src -name '*.so' -delete

$(BIN)/python:
	@$(CHECK_PYTHON)
	@echo "Making $(VENV) with $(PYTHON) ..."
	@$(PYTHON) -m venv $(VENV) || { echo "$(PYTHON) cannot make a virtual environment: install its venv module (Debian: apt-get install python3-venv)." >&2; exit 1; }

$(VENV)/.core: pyproject.toml constraints.txt $(COMPILED) | $(BIN)/python
	@echo "Installing Barnabas into $(VENV), half a minute ..."
	@$(FORGET) && $(PIP) -e . && $(COMPILE)
	@touch $@

$(VENV)/.spark: pyproject.toml constraints.txt $(COMPILED) | $(BIN)/python
	@echo "Installing Barnabas with PySpark into $(VENV) ..."
	@$(FORGET) && $(PIP) -e '.[spark]' && $(COMPILE)
	@touch $@ $(VENV)/.core

$(VENV)/.all: pyproject.toml constraints.txt $(COMPILED) | $(BIN)/python
	@echo "Installing Barnabas with its tests and benchmarks into $(VENV) ..."
	@$(FORGET) && $(PIP) -e '.[bench]' && $(COMPILE)
	@touch $@ $(VENV)/.core $(VENV)/.spark

.PRECIOUS: .cache/pyspark-%/.all
.cache/pyspark-%/.all: pyproject.toml constraints.txt $(COMPILED)
	@$(CHECK_PYTHON)
	@echo "Installing Barnabas with PySpark $* into $(@D) ..."
	@$(PYTHON) -m venv $(@D)
	@sed 's/^pyspark==.*/pyspark==$*/' constraints.txt > $(@D)/constraints.txt
	@$(@D)/bin/python -m pip --disable-pip-version-check -q install -c $(@D)/constraints.txt -e '.[test]'
	@touch $@
