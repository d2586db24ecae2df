"""The page on methods of one's own does what it says: one file, one entry, one test."""

import re
import shutil
from pathlib import Path

import pytest

from resnet_recipes.methods.base import EXCLUSIVE_HOOKS, HOOKS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "howto" / "method.md"

#: Runs every test of the method, and the contract tests with it, in a copy of the package. The
#: process has imported the package, and forgets it; torch would not let it register its operations
#: again.
RUN = """
import sys
import pytest

for name in [name for name in sys.modules if name.partition(".")[0] in ("resnet_recipes", "tests")]:
    if ".ops" not in name:
        del sys.modules[name]
sys.path.insert(0, ".")
sys.exit(pytest.main("-q -n0 -p no:cacheprovider tests/methods -k gaussian_noise".split()))
"""


def linked(folder: Path, copy: Path) -> None:
    """Make a folder with links to all in another, but with a copy of its folder `methods`."""
    copy.mkdir()
    for path in folder.iterdir():
        if path.name == "methods":
            shutil.copytree(path, copy / "methods", ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (copy / path.name).symlink_to(path)


@pytest.mark.slow
def test_the_example_is_a_method_like_ours(nursery, tmp_path):
    method, imported, test = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for name in ("resnet_recipes", "tests"):
        linked(ROOT / name, tmp_path / name)
    (tmp_path / "pyproject.toml").symlink_to(ROOT / "pyproject.toml")
    methods = tmp_path / "resnet_recipes" / "methods"
    (methods / "gaussian_noise.py").write_text(method)
    text = (methods / "__init__.py").read_text()
    assert text.count("    SAM,\n") == 1
    registry = f"{imported}{text}".replace("    SAM,\n", "    GaussianNoise,\n    SAM,\n")
    (methods / "__init__.py").write_text(registry)
    (tmp_path / "tests" / "methods" / "test_gaussian_noise.py").write_text(test)
    (tmp_path / "run_tests.py").write_text(RUN)
    code, out, err = nursery.run(tmp_path, "run_tests").wait()
    assert code == 0, out + err
    assert int(re.search(r"(\d+) passed", out)[1]) > 15


def test_the_page_lists_every_hook():
    rows = re.findall(r"^\| `(\w+)` \|(.*)", PAGE.read_text(), re.MULTILINE)
    assert [name for name, _ in rows] == list(HOOKS)
    alone = {name for name, text in rows if "only one method of a recipe may have" in text}
    assert alone == EXCLUSIVE_HOOKS
