# Every target sets up what it needs in .venv, once; again only when pyproject.toml changes.
RUN := .venv/run
TEST := .venv/test
BIN := .venv/bin
DEMO := data/demo
# what a processor's instructions can change: sums, roundings, kernels
PROCESSOR_TESTS := tests/ops tests/methods tests/network tests/training tests/test_gpu_session.py
FLOOR_TESTS := tests/base tests/recipe tests/methods tests/planning tests/run_folder tests/data/images
NIGHTLY := https://download.pytorch.org/whl/nightly/cpu

.PHONY: help demo docs test processors check floors previews fuzz setup clean

help:
	@echo "make demo       train on synthetic images: a few minutes on any CPU"
	@echo "make test       lint, then the whole test suite"
	@echo "make processors the tests that depend on the processor, as on a CPU with AVX2 and on one without"
	@echo "make check      what is published beside the code: the wheel, the site, the notebook, a release's papers"
	@echo "make floors     a part of the tests with the oldest releases of everything that is needed"
	@echo "make previews   the same part with pre-releases, and with torch of last night"
	@echo "make docs       build the documentation: build/site/index.html, with search"
	@echo "make fuzz       feed damaged and random files to the native decoder: six minutes"
	@echo "make setup      only set up .venv, with everything in it"
	@echo "make clean      remove what the others made, except runs/"

demo: $(RUN)
	$(BIN)/resnet-train demo
	@echo "before you type resnet-train or resnet-recipes yourself:  . $(BIN)/activate"

test: $(TEST)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo --no-cache
	@# Where the environment keeps Python from saving bytecode, every process of every test would compile the package.
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q --numprocesses auto --maxprocesses 8 --dist worksteal

# AVX2 alone stands for a CPU without AVX-512 and bf16 instructions, `default` for one without AVX.
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

# The oldest releases that pyproject.toml allows, in an environment of their own.
floors: $(RUN)
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python build/floors
	$(BIN)/uv pip install --quiet --python build/floors/bin/python --resolution lowest-direct --torch-backend=cpu -e '.[test]'
	build/floors/bin/python -m pytest -q $(FLOOR_TESTS)

# Pre-releases of the same, and torch of last night, in an environment of their own.
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
