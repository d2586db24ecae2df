"""The pages on adding a method, a command and a tracker: one file, one entry, one test."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from resnet_recipes.methods.base import EXCLUSIVE_HOOKS, HOOKS

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs/contributing"

#: For each page: the paths of its file and its test, the file name, and the registry of the entry.
GUIDES = {
    "method": ("methods", "gaussian_noise", "methods/__init__.py"),
    "command": ("commands", "disk", "commands/__init__.py"),
    "tracker": ("report/trackers", "statsd", "base/extras.py"),
}

#: Runs the tests of the pages, and the contract tests, in a copy of the package. The process
#: removes the package from sys.modules, but not its operations, since torch would not register them
#: again.
RUN = """
import sys
import pytest

for name in [name for name in sys.modules if name.partition(".")[0] in ("resnet_recipes", "tests")]:
    if ".ops" not in name:
        del sys.modules[name]
sys.path.insert(0, ".")
sys.exit(pytest.main(["-qrA", "-n0", "-p", "no:cacheprovider", *{tests}, "-k", "{names}"]))
"""


def enter_in_registry(guide: str, text: str, entry: str) -> str:
    """Return the text of a registry with the entry added where the page says."""
    if guide == "method":  # it is imported, and its position matters
        return entry + text.replace("    SAM,\n", "    GaussianNoise,\n    SAM,\n")
    head = {"command": "COMMANDS = (\n", "tracker": "TRACKERS = {\n"}[guide]
    return text.replace(head, head + entry)


@pytest.mark.slow
def test_examples_in_contributing_pages_pass_their_tests(forks, tmp_path):
    for top in ("resnet_recipes", "tests"):
        shutil.copytree(ROOT / top, tmp_path / top)  # including compiled files
    (tmp_path / "pyproject.toml").symlink_to(ROOT / "pyproject.toml")
    tests = ["tests/methods/test_composition.py"]
    examples = []
    for guide, (package, name, registry) in GUIDES.items():
        page = (PAGES / f"{guide}.md").read_text()
        file, entry, test = re.findall(r"```(?:python|text)\n(.*?)```", page, re.DOTALL)
        examples += [f"resnet_recipes/{package}/{name}.py", f"tests/{package}/test_{name}.py"]
        (tmp_path / examples[-2]).write_text(file)
        registry_path = tmp_path / "resnet_recipes" / registry
        text = registry_path.read_text()
        registry_path.write_text(enter_in_registry(guide, text, entry))
        assert len(registry_path.read_text()) > len(text)
        (tmp_path / examples[-1]).write_text(test)
        tests += [f"tests/{package}/test_contract.py", examples[-1]]
    ruff = [sys.executable, "-m", "ruff"]
    for command in (["check", "--no-cache"], ["format", "--check", "--no-cache"]):
        line = [*ruff, *command, *examples]
        result = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr
    names = [name for _, name, _ in GUIDES.values()]
    (tmp_path / "run_tests.py").write_text(RUN.format(tests=tests, names=" or ".join(names)))
    code, out, err = forks.run(tmp_path, "run_tests").wait(timeout=300)  # a suite of its own
    assert code == 0, out + err
    passed = [sum(name in line for line in out.splitlines() if "PASSED" in line) for name in names]
    assert passed[0] > 15
    assert min(passed[1:]) > 2


def test_method_page_lists_every_hook():
    page = (PAGES / "method.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == list(HOOKS)
    (exclusive,) = re.findall(r"may provide each of these hooks: (.*?)\.", page)
    assert set(re.findall(r"`(\w+)`", exclusive)) == EXCLUSIVE_HOOKS
