# make demo, make test and make check each work alone from a clean clone: Python >= 3.11, pip, make; no root.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup demo test check bench clean
.DELETE_ON_ERROR:

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml
	@test -n "$(PYTHON)" || { echo "make: needs Python >= 3.11 (set PYTHON=...)" >&2; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[fast,test]'
	@touch $@

$(VENV)/.checks: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[fast,test,dev]'
	@touch $@

demo: setup
	$(BIN)/apples demo

test: setup
	$(BIN)/python -m pytest -q --cov --cov-report=term:skip-covered

check: $(VENV)/.checks
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy examples/jacobi2d/*.py
	$(BIN)/lint-imports

bench: setup
	@for program in benchmarks/*.py; do echo "== $$program"; $(BIN)/python $$program || exit 1; done

clean:
	rm -rf $(VENV) runs build dist .mypy_cache .ruff_cache .coverage .import_linter_cache .hypothesis
