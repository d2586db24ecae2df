# Every target first sets up .venv if it is missing or pyproject.toml has changed.
RUN := .venv/run
TEST := .venv/test
BIN := .venv/bin
DEMO := data/demo
# tests whose results depend on the instructions of the CPU: sums, rounding, kernels
PROCESSOR_TESTS := tests/ops tests/methods tests/network tests/training tests/test_gpu_session.py
FLOOR_TESTS := tests/base tests/recipe tests/methods tests/planning tests/run_folder tests/data/images tests/report/test_summary_figures.py
NIGHTLY := https://download.pytorch.org/whl/nightly/cpu

.PHONY: help demo docs test processors check floors previews fuzz setup clean

help:
	@echo "make demo       train on synthetic images: a few minutes on any CPU"
	@echo "make test       lint, then the whole test suite"
	@echo "make processors run the tests that depend on the CPU, without AVX-512 and without AVX"
	@echo "make check      check the wheel, the site, the notebook and the release metadata"
	@echo "make floors     run some tests with the oldest supported releases of all dependencies"
	@echo "make previews   run the same tests with pre-releases, and the nightly build of torch"
	@echo "make docs       build the documentation: build/site/index.html, with search"
	@echo "make fuzz       feed damaged and random files to the native decoder: six minutes"
	@echo "make setup      only set up .venv"
	@echo "make clean      delete everything that the other targets created, except runs/"

demo: $(RUN)
	$(BIN)/resnet-train demo
	@echo "to use resnet-train and resnet-recipes in this terminal, run:  . $(BIN)/activate"

test: $(TEST)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo --no-cache
	@# If the environment prevents Python from saving bytecode, every process of every test would compile the package.
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q --numprocesses auto --maxprocesses 8 --dist worksteal

# `avx2` simulates a CPU without AVX-512 and bf16 instructions, `default` a CPU without AVX.
processors: $(TEST)
	for isa in avx2 default; do \
	    ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=$$isa PYTHONDONTWRITEBYTECODE= \
	    $(BIN)/python -m pytest -q --numprocesses auto --maxprocesses 8 --dist worksteal $(PROCESSOR_TESTS) || exit 1; \
	done

check: $(TEST)
	tools/release_check.sh
	tools/site_check.sh
	tools/wheel_check.sh
	$(BIN)/python tools/notebook.py --check

docs: $(TEST)
	$(BIN)/python tools/reference.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "build/site/index.html"

# The oldest releases that pyproject.toml allows, in a separate environment.
floors: $(RUN)
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python build/floors
	$(BIN)/uv pip install --quiet --python build/floors/bin/python --resolution lowest-direct --torch-backend=cpu -e '.[test]'
	build/floors/bin/python -m pytest -q $(FLOOR_TESTS)

# Pre-releases of the dependencies, and the nightly build of torch, in a separate environment.
previews: $(RUN)
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python build/previews
	$(BIN)/uv pip install --quiet --python build/previews/bin/python --prerelease=allow \
	    --index-strategy unsafe-best-match --extra-index-url $(NIGHTLY) -e '.[test]'
	build/previews/bin/python -m pytest -q $(FLOOR_TESTS)

fuzz: $(TEST)
	$(BIN)/python -m tools.fuzz_native
	RESNET_RECIPES_CASES=20000 $(BIN)/python -m pytest -q tests/data/native/test_property.py

setup: $(TEST)

clean:
	rm -rf .venv $(DEMO) build dist *.egg-info .pytest_cache .ruff_cache

$(RUN): pyproject.toml tools/setup.sh
	@tools/setup.sh run

$(TEST): pyproject.toml tools/setup.sh
	@tools/setup.sh test
