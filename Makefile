# Every target sets up what it needs in .venv, on a fresh machine too.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
JOBS ?= 2
PYTEST = $(BIN)/python -m pytest -n $(JOBS) --dist loadfile
export TF_CPP_MIN_LOG_LEVEL ?= 3

.PHONY: test check check-all lint lock docs fuzz mutants matrix dist soak bench bench-large demo clean

test: $(READY)          ## the tests
	$(PYTEST) -m "not slow"

check: lint test        ## what a change has to pass

# In parts: a process that runs all tests grows to 12 GB, perhaps because TensorFlow keeps what XLA has compiled.
PARTS := keras_bridge experiments hypergradients driver
check-all: lint .venv/.tools ## check, and the long grids, several processes, benchmarks' correctness, docs and notebooks
	$(MAKE) --keep-going $(PARTS:%=all-%) all-others

all-others:
	$(PYTEST) $(PARTS:%=--ignore=tests/%)

all-%:
	$(PYTEST) tests/$*

docs: .venv/.tools      ## the documentation as HTML in docs/_build; a warning is an error
	$(BIN)/sphinx-build -W --keep-going -q docs docs/_build

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

fuzz: $(READY)          ## the randomised tests with fresh seeds, which are printed
	RFHO2_FUZZ=1 $(BIN)/python -m pytest tests -k "random or projection or permutation" -rP

mutants: $(READY)       ## random mistakes in the library, one at a time: the tests of its folder have to notice
	$(BIN)/python -m tests.mutants --jobs=$(JOBS)

matrix:                 ## the core tests in fresh environments: oldest and newest versions, each Python that is here
	$(PYTHON) -m tests.matrix

dist: .venv/.tools      ## the wheel, built twice, and the source distribution, in dist/; their packages, and known vulnerabilities
	$(BIN)/python -m tests.release

lock: .venv/.tools      ## the newest versions, with hashes, for requirements.lock and for the tools of docs and releases
	$(BIN)/python -m tests.release lock

soak: $(READY)          ## 200 kills of a run of 300 hyper-iterations; 10,000 steps in real time: nothing lost, nothing grows
	$(BIN)/python -m experiments.soak --part=kills
	$(BIN)/python -m experiments.soak --part=long --hyper_iterations=500

bench: $(READY)         ## costs, as ratios measured in one run; what the planner predicts
	$(BIN)/python -m experiments.benchmark
	$(BIN)/python -m experiments.plan_benchmark

bench-large: $(READY)   ## real time at the paper's size: 15.68 million weights, three hypers
	$(BIN)/python -m experiments.phone_benchmark

demo: $(READY)          ## data hyper-cleaning on real digits: a table and figures in results/data_hyper_cleaning
	$(BIN)/python -m experiments.data_hyper_cleaning --preset=quick

$(READY): setup.py requirements.txt requirements.lock
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --require-hashes --requirement requirements.lock
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

.venv/.tools: $(READY) tools.lock
	$(BIN)/pip install --quiet --require-hashes --requirement tools.lock
	touch $@

clean:
	rm -rf .venv .venv-matrix results build dist docs/_build *.egg-info
