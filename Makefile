# make demo, make test and make check each work alone from a clean clone: Python >= 3.11, pip, make; no root.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin

# Without it each of the thousand processes that the tests start would compile all sources anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo quick test test-more measure golden errors reference coverage check docs man bench figures evidence pictures soak vm vm-machine vm-lab lock dist clean
.DELETE_ON_ERROR:

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml
	@test -n "$(PYTHON)" || { echo "make: needs Python >= 3.11 (set PYTHON=...)" >&2; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[fast,service,test]'
	@touch $@

$(VENV)/.checks: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[fast,service,test,dev,docs]'
	@touch $@

demo: setup
	$(BIN)/apples demo

# Tests are in tiers. Many wait for processes, so three workers keep two cores busy.
PYTEST := $(BIN)/python -m pytest -q
SPREAD := -n3 --dist loadgroup
QUICK := tests/test_smoke.py tests/test_errors.py tests/test_units.py tests/test_parsers.py \
  tests/architecture tests/resources tests/io tests/hat/test_reading.py tests/hat/test_expression.py \
  tests/hat/test_template.py tests/hat/test_writing.py tests/nws/test_contracts.py \
  tests/nws/test_scored_forecaster.py tests/agent/models tests/agent/planners tests/agent/selector \
  tests/agent/rescheduling tests/scheduling/test_driver.py tests/scheduling/test_ledger.py \
  tests/cluster/test_live_scheduler.py tests/cluster/test_replay.py tests/simulation/test_invariants.py \
  tests/topology/test_allocator.py tests/topology/test_recovery.py tests/malleable/test_protocol.py \
  tests/malleable/test_strips.py tests/launch/test_run.py tests/launch/test_events.py tests/agent/test_plan.py \
  tests/main/test_golden.py tests/agent/test_learning.py tests/jobs/test_recording.py tests/scheduling/test_deciders.py \
  tests/applications/pipeline/test_planning.py tests/simulation/test_swf.py tests/simulation/test_instants.py \
  tests/nws/test_memory.py tests/nws/test_engine.py

# Under a minute: the pure tests that find most faults, and three smoke tests (a plan, a run, a resize).
quick: export APPLES_EXAMPLES ?= 25
quick: setup
	$(PYTEST) $(SPREAD) -m 'not more and not hardware' $(QUICK)

# Before each push. No test measures the machine or asserts a time.
test: export APPLES_EXAMPLES ?= 34
test: setup
	$(PYTEST) $(SPREAD) -m 'not more and not hardware'

# The rest: emulated clusters, Slurm, browsers, real kills by the dozen, every page of the documentation.
test-more: setup
	$(PYTEST) $(SPREAD) -m 'more and not hardware'

# The tests that measure this machine's CPUs, memory and sockets. They report; a miss fails no gate.
measure: setup
	-$(PYTEST) -m hardware

# Write tests/golden and the generated pages of docs/reference from the code; read the difference before you commit it.
golden: setup
	GOLDEN=write $(PYTEST) tests/main/test_golden.py
errors: setup
	$(BIN)/python docs/error_codes.py
reference: setup
	$(BIN)/python docs/json_documents.py
	$(BIN)/python docs/command_help.py

# The same tests with branch coverage shown; tracing costs half as much again.
coverage: setup
	$(PYTEST) --cov --cov-report=term:skip-covered $(SPREAD) -m 'not hardware'

check: $(VENV)/.checks
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy examples/jacobi2d/*.py
	$(BIN)/mypy --cache-dir .mypy_cache/particles examples/particles/*.py
	$(BIN)/lint-imports

# The documentation as a site that opens offline: build/docs/index.html. Warnings are errors, as in the test of it.
docs: $(VENV)/.checks
	$(BIN)/python -m sphinx -W --keep-going -q -b html -c docs . build/docs
	@echo "build/docs/index.html"

# Manual pages from the help of each command: man -l build/man/man1/apples.1
man: setup
	$(BIN)/python packaging/man_pages.py build/man/man1

# The figures of the AppLeS paper need root and an hour and a half on an idle machine.
FIGURES := figure6 figure7 figure9 subsets changing_load
figures: setup
	$(BIN)/python -m benchmarks $(FIGURES) --json runs/figures

# All benchmarks, or those of BENCH: make bench BENCH='planner resize.bars --quick'
bench: setup
	$(BIN)/python -m benchmarks $(BENCH)

# The tables of docs/evidence.md, from benchmarks/results. To measure again: make bench BENCH='NAME --json benchmarks/results'
evidence: setup
	$(BIN)/python -m benchmarks.evidence

# N kills, N/5 power cuts (root) and kills of an archive, every step of a lab (root), N seeds of the probe turns, N corruptions: make soak N=10000 for the figures of the guarantees
N ?= 1000
soak: setup
	$(BIN)/python tests/soak_nws.py all --n $(N) --engine auto
	$(BIN)/python tests/soak_topologyd.py all --n $(N)
	APPLES_TOPOLOGY_CASES=$$(( 20 * $(N) )) $(BIN)/python -m pytest -q tests/topology/test_allocator.py -k radius
	$(BIN)/python tests/soak_protocol.py
	$(BIN)/python tests/soak_parsers.py all --n $$(( 100 * $(N) ))
	$(BIN)/python tests/jobs/record_trials.py $$(( $(N) / 5 ))
	$(BIN)/python tests/soak_policies.py --n $$(( 10 * $(N) ))
	$(BIN)/python tests/soak_live.py --n $(N)
	$(BIN)/python tests/soak_scheduler.py --n $$(( $(N) / 10 ))
	$(BIN)/python tests/soak_scheduler_log.py kills=$(N) power=$$(( $(N) / 5 ))
	[ "$$(id -u)" != 0 ] || $(BIN)/python tests/soak_lab.py
	$(BIN)/python tests/malleable/walk.py $(N)
	$(BIN)/python tests/malleable/faults/trials.py $(N) --least $$(( $(N) / 25 ))
	$(BIN)/python tests/malleable/faults/loaded.py $(N)

clean:
	rm -rf $(VENV) runs build dist .mypy_cache .ruff_cache .pytest_cache .coverage .import_linter_cache .hypothesis

# What the tests run with, by version and hash: pip install --require-hashes -r packaging/requirements-test.txt
LOCK := packaging/requirements-test.txt
lock: $(VENV)/.release
	{ grep '^#' $(LOCK); $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	  --no-annotate --no-emit-index-url --no-emit-find-links --extra fast --extra service --extra test pyproject.toml; \
	} >$(LOCK).new && mv $(LOCK).new $(LOCK)

# Wheel and sources, the parts of an installation of the wheel (CycloneDX), and the sums of all three.
dist: $(VENV)/.release
	rm -rf dist build/parts
	$(BIN)/python -m build --quiet
	$(BIN)/python -m venv --without-pip build/parts
	$(BIN)/python -m pip --quiet --python build/parts/bin/python install --no-deps --no-index --find-links dist apples
	$(BIN)/python -m pip --quiet --python build/parts/bin/python install apples
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --of JSON \
	  -o dist/apples.cdx.json build/parts/bin/python
	cd dist && sha256sum * >SHA256SUMS

$(VENV)/.release: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[release]'
	@touch $@

# What is promised where there are systemd, cgroup v2 and NUMA, tried on an emulated machine that has them, and cuts of
# its power; then real jobs over ssh on a lab of three such machines. Needs root and the packages of
# packaging/vm/emulated.py (77: skipped, with the reason), and most of four CPUs for half an hour.
VM := $(BIN)/python packaging/vm
vm: vm-machine vm-lab
vm-machine: setup
	$(VM)/emulated.py build && $(VM)/emulated.py check || [ $$? = 77 ]
vm-lab: setup
	$(VM)/emulated.py build && $(VM)/lab.py || [ $$? = 77 ]

# The figures of docs/architecture.md, from text; needs graphviz.
pictures: setup
	$(BIN)/python benchmarks/house.py --draw > docs/pictures/rooms.dot
	for figure in rooms processes; do dot -Tsvg docs/pictures/$$figure.dot -o docs/pictures/$$figure.svg || exit 1; done
