"""The wheel, as a stranger gets it.

Built, installed into an empty environment, and run from an empty folder.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from importlib.util import find_spec
from pathlib import Path
from sysconfig import get_platform

import numpy as np
import pytest
from PIL import Image

import resnet_recipes
import resnet_recipes.optim
from resnet_recipes.data.native.library import description

ROOT = Path(__file__).parents[1]

#: Runs an application with the words of each argument, in one process, as importing torch is long.
ONE_BY_ONE = """
import runpy, sys
for words in sys.argv[1:]:
    sys.argv = ["app.py", *words.split()]
    runpy.run_path("app.py", run_name="__main__")
"""

pytestmark = pytest.mark.slow


def run(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command where nothing of this checkout can be found by accident."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "RESNET_RECIPES"))
    }
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=clean,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of the sources, with the library compiled."""
    sources = tmp_path_factory.mktemp("checkout") / "sources"
    shutil.copytree(
        ROOT / "resnet_recipes",
        sources / "resnet_recipes",
        symlinks=True,
        ignore=shutil.ignore_patterns("__pycache__", "*.so"),
    )
    for name in ("recipes", "hydra_plugins", "licenses"):
        shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    build = sources / "build" / f"lib.{get_platform()}-{sys.implementation.cache_tag}"
    # setup.py compiles again what a source is newer than
    for library in (ROOT / "resnet_recipes").rglob("*.so"):
        for place in (build, sources):
            compiled = place / library.relative_to(ROOT)
            compiled.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(library, compiled)
    return sources


@pytest.fixture(scope="module")
def wheel(checkout):
    """The wheel, built without the network."""
    folder = checkout.parent
    pip("wheel", "--no-build-isolation", "-w", folder, checkout, cwd=folder)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The commands of an environment with the wheel."""
    return environment(tmp_path_factory.mktemp("environment"), wheel)


@pytest.fixture(scope="module")
def editable(checkout, tmp_path_factory):
    """The commands of an environment with an editable install."""
    return environment(tmp_path_factory.mktemp("editable"), "--no-build-isolation", "-e", checkout)


def environment(folder: Path, *what: object) -> Path:
    """Install into a fresh environment, which borrows all requirements; return its commands."""
    venv.create(folder, symlinks=True, with_pip=False)
    python = folder / "bin" / "python"
    packages = next(folder.glob("lib/python*/site-packages"))
    lent = {
        str(Path(find_spec(name).origin).parents[1]) for name in ("torch", "hydra", "yaml", "rich")
    }
    # a path added so does not run the .pth files in it
    (packages / "lent.pth").write_text("\n".join(sorted(lent)) + "\n")
    pip("install", *what, cwd=folder, python=python)
    return folder / "bin"


def pip(verb: str, *words: object, cwd: Path, python: str | Path = sys.executable) -> None:
    """Run pip for an environment, without the network and without what the package needs."""
    program = (sys.executable, "-m", "pip", "--python", python)
    done = run(*program, verb, "--no-deps", "--no-index", *words, cwd=cwd)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def images(tmp_path):
    """A folder of two classes with 16 training and 4 validation images."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 8), ("val", 2)):
        for label in ("cat", "dog"):
            (tmp_path / "images" / split / label).mkdir(parents=True)
            for index in range(count):
                pixels = rng.integers(0, 256, (40, 50, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / "images" / split / label / f"{index}.jpg")
    return tmp_path / "images"


def test_the_wheel_holds_every_module_and_every_recipe(wheel):
    inside = set(zipfile.ZipFile(wheel).namelist())
    modules = {
        str(path.relative_to(ROOT))
        for folder in ("resnet_recipes", "hydra_plugins")
        for path in (ROOT / folder).rglob("*.py")
    }
    recipes = {
        f"resnet_recipes/{path.relative_to(ROOT)}"
        for path in (ROOT / "recipes").rglob("*")
        if path.suffix in (".py", ".yaml")
    }
    tried = {str(path.relative_to(ROOT)) for path in (ROOT / "resnet_recipes").rglob("known/*.jpg")}
    assert len(recipes) >= 15
    assert len(tried) == 6
    assert (modules | recipes | tried) - inside == set()


def test_the_wheel_has_the_licences_of_what_it_contains(wheel):
    archive = zipfile.ZipFile(wheel)
    texts = [
        archive.read(name).decode()
        for name in archive.namelist()
        if name.endswith("licenses/libjpeg-turbo.txt")
    ]
    assert len(texts) == 1
    assert "based in part on the work of the Independent JPEG Group" in texts[0]
    assert "Modified (3-clause) BSD License" in texts[0]


def test_the_wheel_lists_the_libraries_that_it_contains(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if "/sboms/" in name]
    listed = json.loads(archive.read(name))
    components = [f"{each['name']} {each['version']} inside" for each in listed["components"]]
    drawing, found = components[:3], components[3:]
    assert [name.split()[0] for name in drawing] == ["vega", "vega-lite", "vega-embed"]
    has_library = any(name.endswith(".so") for name in archive.namelist())
    said = description().split(", ")[-1] if has_library else ""
    assert found == [said] * said.endswith("inside")
    assert listed["metadata"]["component"]["version"] == resnet_recipes.__version__


@pytest.mark.parametrize(
    ("said", "listed"),
    [
        ("libjpeg-turbo 3.2.0 inside", ["pkg:generic/libjpeg-turbo@3.2.0"]),
        ("/lib/x86_64-linux-gnu/libjpeg.so.62", []),  # of the system, where it has no static one
    ],
)
def test_only_a_libjpeg_turbo_that_is_inside_is_listed(said, listed, tmp_path):
    if shutil.which("g++") is None:
        pytest.skip("needs a compiler")
    library = tmp_path / "library.so"
    source = f'extern "C" const char *engine_jpeg() {{ return "{said}"; }}'
    command = ["g++", "-shared", "-fPIC", "-x", "c++", "-", "-o", library]
    subprocess.run(command, input=source, text=True, check=True)
    # in a process of its own: setuptools refuses to follow whoever has imported distutils
    listing = """
import pathlib, runpy, setuptools, sys
setuptools.setup = lambda **_: None
parts = runpy.run_path("setup.py")["contained"](pathlib.Path(sys.argv[1]))
print(*(part["purl"] for part in parts))
"""
    command = [sys.executable, "-c", listing, library]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.split() == listed


def test_the_wheel_holds_nothing_else(wheel):
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    known = (
        ".py",
        ".yaml",
        ".csv",
        ".css",
        ".js",
        "native/libengine.so",
        ".jpg",
        "py.typed",
        "/__init__.pyi",
    )
    folders = ("resnet_recipes/", "hydra_plugins/resnet_recipes/")
    assert [
        name for name in inside if not (name.startswith(folders) and name.endswith(known))
    ] == []


def test_one_wheel_serves_every_python(wheel):
    holds_library = any(name.endswith(".so") for name in zipfile.ZipFile(wheel).namelist())
    assert wheel.name.endswith("-py3-none-any.whl") != holds_library
    assert "-py3-none-" in wheel.name


def test_an_installed_wheel_lists_its_recipes_from_an_empty_folder(installed, tmp_path):
    found = run(
        installed / "python",
        "-c",
        "import resnet_recipes; print(resnet_recipes.__file__)",
        cwd=tmp_path,
    )
    assert found.stdout.startswith(str(installed.parent)), (
        "another copy of the package is in the way"
    )
    listed = run(installed / "resnet-train", "--list", cwd=tmp_path)
    assert listed.returncode == 0, listed.stderr
    for recipe in (ROOT / "recipes").glob("*.yaml"):
        assert recipe.stem in listed.stdout
    assert list(tmp_path.iterdir()) == []


def test_an_installed_wheel_plans_a_run_from_an_empty_folder(installed, images, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    sizes = ("bs=8", "batch.bn_size=8", "epochs=10")
    planned = run(
        installed / "resnet-train", "recipe=mild", f"data={images}", *sizes, "--dry-run", cwd=empty
    )
    assert planned.returncode == 0, planned.stderr
    assert "20 steps" in planned.stdout
    assert list(empty.iterdir()) == []


def test_the_hydra_application_of_the_docs_has_the_recipes_of_an_installed_wheel(
    installed, images, tmp_path
):
    page = (ROOT / "docs" / "howto" / "hydra.md").read_text(encoding="utf-8")
    (tmp_path / "conf").mkdir()
    config, code = (
        re.search(rf"```{language}\n(.*?)```", page, re.DOTALL)[1] for language in ("yml", "python")
    )
    (tmp_path / "conf" / "config.yaml").write_text(config)
    (tmp_path / "app.py").write_text(code)
    sizes = "recipe.batch.global_size=8 recipe.batch.bn_size=8"
    words = re.findall(r"^python app.py (.*)$", page, re.MULTILINE)
    done = run(
        installed / "python", "-c", ONE_BY_ONE, *(f"{each} {sizes}" for each in words), cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    said = [line.split() for line in done.stdout.splitlines()]
    assert said == [["hot", "decoupled_sgdw", "540"], ["mild", "lamb", "72"]]


@pytest.mark.parametrize("install", ["installed", "editable"])
def test_a_user_s_script_passes_a_strict_type_checker(install, request, tmp_path):
    """It uses every public name; a mistake that is missed makes its `type: ignore` unused."""
    pytest.importorskip("mypy")
    script = Path(__file__).with_name("typed_script.py")
    for module in (resnet_recipes, resnet_recipes.optim):
        prefix = module.__name__.replace("resnet_recipes", "rr")
        assert [
            name for name in module.__all__ if f"{prefix}.{name}" not in script.read_text()
        ] == []
    # reading torch's own types takes three times as long, and finds no more
    (tmp_path / "mypy.ini").write_text(
        "[mypy]\nstrict = true\n[mypy-torch.*]\nfollow_imports = skip\n"
    )
    cache = request.config.cache.mkdir("mypy")
    python = request.getfixturevalue(install) / "python"
    words = ("--cache-dir", cache, "--python-executable", python, shutil.copy(script, tmp_path))
    checked = run(sys.executable, "-m", "mypy", *words, cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout
