# Every target sets up what it needs in .venv, once; again only when pyproject.toml changes.
RUN := .venv/run
TEST := .venv/test
BIN := .venv/bin
DEMO := data/demo

.PHONY: help demo docs test check fuzz setup clean

help:
	@echo "make demo    train on synthetic images: a few minutes on any CPU"
	@echo "make test    lint, then the whole test suite"
	@echo "make check   what is published beside the code: the wheel, the site, the notebook, a release's papers"
	@echo "make docs    build the documentation: build/site/index.html, with search"
	@echo "make fuzz    feed damaged and random files to the native decoder: six minutes"
	@echo "make setup   only set up .venv, with everything in it"
	@echo "make clean   remove what the others made, except runs/"

demo: $(RUN)
	@$(BIN)/python -c 'import pathlib; from resnet_recipes.data import demo; demo.write(pathlib.Path("$(DEMO)"))'
	$(BIN)/resnet-train recipe=demo data=$(DEMO)
	@echo "before you type resnet-train or resnet-recipes yourself:  . $(BIN)/activate"

test: $(TEST)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo --no-cache
	@# Where the environment keeps Python from saving bytecode, every process of every test would compile the package.
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q --numprocesses auto --maxprocesses 8 --dist worksteal

check: $(TEST)
	tools/release_check.sh
	tools/site_check.sh
	tools/wheel_check.sh
	$(BIN)/python tools/notebook.py --check

docs: $(TEST)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "build/site/index.html"

fuzz: $(TEST)
	$(BIN)/python tools/fuzz_native.py
	RESNET_RECIPES_CASES=20000 $(BIN)/python -m pytest -q tests/data/native/test_property.py

setup: $(TEST)

clean:
	rm -rf .venv $(DEMO) build dist *.egg-info .pytest_cache .ruff_cache

$(RUN): pyproject.toml tools/setup.sh
	@tools/setup.sh run

$(TEST): pyproject.toml tools/setup.sh
	@tools/setup.sh test
