"""What a release promises beside the code: the changelog, the papers to cite, the workflows."""

import re
import tomllib
from importlib.util import find_spec
from pathlib import Path

import yaml

import resnet_recipes

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_changelog_has_a_section_for_this_version():
    sections = re.findall(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert sections[0] == "Unreleased"
    assert resnet_recipes.__version__ in sections or len(sections) == 1


def test_the_citation_names_every_paper_that_the_code_names():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())["references"]
    known = {each["identifiers"][0]["value"] for each in cited}
    sources = [*(ROOT / "resnet_recipes").rglob("*.py"), *(ROOT / "recipes").glob("*.yaml")]
    named = {
        f"arXiv:{number}"
        for path in sources
        for number in re.findall(r"arXiv[: ](\d{4}\.\d{5})", path.read_text())
    }
    assert len(named) > 10
    assert named - known == set()


def test_every_python_that_is_tested_is_a_classifier_and_the_oldest_is_required():
    workflow = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())
    tested = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    named = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if ":: 3." in line]
    assert named == tested
    assert PROJECT["requires-python"] == f">={tested[0]}"


def test_workflows_may_write_only_what_they_publish():
    for path in (ROOT / ".github/workflows").glob("*.yml"):
        workflow = yaml.safe_load(path.read_text())
        assert workflow["permissions"]["contents"] == "read", path.name


def test_the_page_on_dependencies_names_all_of_them():
    page = (ROOT / "docs/dependencies.md").read_text()
    extras = {k: v for k, v in PROJECT["optional-dependencies"].items() if k not in ("dev", "docs")}
    wanted = [*PROJECT["dependencies"], *(each for group in extras.values() for each in group)]
    names = [re.match(r"[\w-]+", each)[0] for each in wanted]
    assert [name for name in names if not re.search(rf"\b{name}\b", page)] == []
    assert [name for name in extras if f"\n| {name} |" not in page] == []


def test_the_types_of_public_modules_are_checked_and_those_left_out_are_known():
    text = (ROOT / "mypy.ini").read_text()
    left_out = set(re.findall(r"resnet_recipes\.[\w.]+", text))
    public = {"api", "data", "data.base", "methods", "methods.base", "optim", "optim.base"}
    assert left_out & {f"resnet_recipes.{name}" for name in public} == set()
    assert [name for name in sorted(left_out) if not find_spec(name)] == []
    assert f"# {len(left_out)} modules" in text


def test_the_image_is_built_from_what_the_wheel_needs_and_runs_as_an_ordinary_user():
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line[0] == "!"}
    needed = {"pyproject.toml", "setup.py", "README.md", "LICENSE", "licenses"}
    assert kept == needed | {"recipes", "hydra_plugins", "resnet_recipes"}
    last_stage = (ROOT / "Dockerfile").read_text().rpartition("FROM ")[2]
    assert re.search(r"^USER [1-9]", last_stage, re.MULTILINE)
    assert "gcc" not in last_stage
    assert "g++" not in last_stage


def test_wheels_of_other_systems_build_the_libjpeg_turbo_that_the_page_names():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    script = (ROOT / re.search(r"tools/\w+\.sh", build["before-all"])[0]).read_text()
    version = re.search(r"^version=(\S+) commit=[0-9a-f]{40}$", script, re.MULTILINE)[1]
    assert f"builds libjpeg-turbo {version} from source" in (ROOT / "docs/data.md").read_text()
