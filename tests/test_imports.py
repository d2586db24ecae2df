"""Scripts, benchmarks and pages import names that exist, although no test runs all of them."""

import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

import pytest

from tests.shared.sources import ROOT, assert_none, parse_sources
from tests.shared.tables import parse_rows

PLACES = (
    *("tools/*.sh", "tools/**/*.py", "benchmarks/**/*.py", "hydra_plugins/**/*.py"),
    *("README.md", "CONTRIBUTING.md", "docs/**/*.md", ".github/workflows/*", "Makefile"),
)
FILES = sorted({path for place in PLACES for path in ROOT.glob(place) if path.is_file()})

_FROM = re.compile(r"\bfrom (resnet_recipes[\w.]*) import (\([^)]*\)|[^\n;'\"]+)")
_AS = re.compile(r"\bimport (resnet_recipes[\w.]*)(?: as (\w+))?")


def find_stale(text: str) -> Iterator[str]:
    """Yield the imports and attributes of the package in `text` that do not exist.

    A page may import a module that it tells the reader to create.
    """
    modules: dict[str, ModuleType] = {}
    for path, names in _FROM.findall(text):
        for item in re.sub(r"#.*|[()]", "", names).split(","):
            name, _, alias = item.strip().partition(" as ")
            if name and not is_created(text, path, name):
                if (value := find_in_module(path, name)) is None:
                    yield f"from {path} import {name}"
                elif isinstance(value, ModuleType):
                    modules[alias or name] = value
    for path, alias in _AS.findall(text):
        parent, _, name = path.rpartition(".")
        if parent and find_in_module(parent, name) is None:
            yield f"import {path}"
        elif alias:
            modules[alias] = import_module(path)
    for alias, module in modules.items():
        for name in re.findall(rf"(?<![\w./\"']){alias}\.([a-z]\w*)\b", text):
            if not hasattr(module, name) and name not in ("py", "md", "csv"):
                yield f"{alias}.{name}"


def is_created(text: str, path: str, name: str) -> bool:
    files = (f"{path.replace('.', '/')}{end}.py" for end in ("", f"/{name}"))
    return any(file in text for file in files)


def find_in_module(path: str, name: str) -> object | None:
    try:
        module = import_module(path)
    except ModuleNotFoundError:
        return None
    if not hasattr(module, name) and hasattr(module, "__path__") and find_spec(f"{path}.{name}"):
        return import_module(f"{path}.{name}")
    return getattr(module, name, None)


def test_imports_of_scripts_and_pages_exist():
    assert len(FILES) > 100
    assert_none(
        f"{path.relative_to(ROOT)}: {stale}"
        for path in FILES
        for stale in find_stale(path.read_text(encoding="utf-8"))
    )


def test_every_name_of_every_all_exists():
    """Python checks `__all__` only when `import *` runs."""
    modules = [
        import_module(
            ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        )
        for path in parse_sources()
        if "__all__ = " in path.read_text(encoding="utf-8")
    ]
    assert len(modules) > 2
    assert_none(
        f"{module.__name__}.{name}"
        for module in modules
        for name in module.__all__
        if not hasattr(module, name)
    )


@pytest.mark.parametrize(
    ("text", "stale"),
    parse_rows("""
python -c 'from resnet_recipes.data.native import described' | described
from resnet_recipes.data import (\\n    demo,\\n    demos,\\n) | demos
from resnet_recipes.data import demo as d; d.wrote('a') | d.wrote
import resnet_recipes as rr\\nrr.optims.LAMB() | rr.optims
import resnet_recipes.estimates | import resnet_recipes.estimates
from resnet_recipes.estimates.roofline import Gpu | Gpu
"""),
)
def test_import_search_finds_stale_imports(text, stale):
    assert [line.endswith(stale) for line in find_stale(text.replace("\\n", "\n"))] == [True]


def test_import_search_accepts_modules_that_a_page_creates():
    page = "`resnet_recipes/methods/noise.py`:\nfrom resnet_recipes.methods.noise import Noise"
    assert [*find_stale(page)] == []
