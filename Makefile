# Two commands for a fresh machine: `make demo` and `make test`. Each sets up .venv first.
PYTHON ?= python3
VENV = .venv
BIN = $(VENV)/bin

.PHONY: demo test slow boundscheck floors lint docs pictures dist bench clean

# Tests run side by side, a process on each core: the threads of BLAS would only wait for each other.
test slow boundscheck floors: export OMP_NUM_THREADS = 1

demo: $(VENV)/ready
	$(BIN)/stradask demo

test: $(VENV)/ready
	$(BIN)/pytest -n auto --maxprocesses 4 --dist loadfile

# What takes long: kills at random moments, calibration, thousands of damaged files.
slow: $(VENV)/ready
	$(BIN)/pytest -n auto --maxprocesses 4 --dist loadfile -m slow tests

# Every index of compiled code held against its array, over the tests of kernels: minutes of compiling, the first
# time, into a cache of its own.
boundscheck: $(VENV)/ready
	NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$(CURDIR)/.numba-boundscheck $(BIN)/pytest -n auto --maxprocesses 4 \
		--dist loadfile --timeout 3000 --ignore tests/kernels/test_cache_folder.py \
		--ignore tests/kernels/test_cache_stamp.py tests/kernels

# The suite with the lowest versions that setup.cfg allows.
floors:
	$(PYTHON) -m venv .venv-floors
	sed -En 's/^    ([a-z0-9-]+)(\[[a-z]+\])?>=([0-9.]+)(;.*)?$$/\1==\3/p' setup.cfg > .venv-floors/floors.txt
	.venv-floors/bin/python -m pip install --quiet --quiet -c .venv-floors/floors.txt --editable '.[test]'
	.venv-floors/bin/pytest -n auto --maxprocesses 4 --dist loadfile

lint: $(VENV)/ready-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tests/lint_tree.py .lint
	cd .lint && ../$(BIN)/lint-imports --config ../setup.cfg
	cd .lint && ../$(BIN)/mypy --config-file ../setup.cfg

docs: $(VENV)/ready-lint
	rm -rf docs/generated
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html

pictures: $(VENV)/ready
	$(BIN)/python docs/pictures.py

dist: $(VENV)/ready-lint
	rm -rf build dist
	$(BIN)/python -m build --wheel --sdist
	$(BIN)/twine check --strict dist/*

bench: $(VENV)/ready
	$(BIN)/stradask bench --quick

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --quiet --upgrade pip -c constraints.txt

$(VENV)/ready: setup.cfg constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --quiet -c constraints.txt --build-constraint constraints.txt --editable '.[test]'
	touch $@

$(VENV)/ready-lint: $(VENV)/ready
	$(BIN)/python -m pip install --quiet --quiet -c constraints.txt --build-constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .lint build dist docs/_build docs/generated *.egg-info .numba-boundscheck .venv-floors
