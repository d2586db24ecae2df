"""The documentation builds without a warning; what it says of the code is read from it."""

import html
import re
from dataclasses import fields
from pathlib import Path

import pytest

from resnet_recipes import cli
from resnet_recipes.commands.verbs import VERBS
from resnet_recipes.jobs import gpus
from resnet_recipes.methods import ORDER
from resnet_recipes.optim import OPTIMIZERS
from resnet_recipes.recipe.library import packaged_folder
from resnet_recipes.recipe.typed import settings

pytest.importorskip("material", reason="the extra `docs` is not installed")
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the site, built once; a warning is an error."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder))
        config.plugins.on_startup(command="build", dirty=False)
        build(config)
    return folder


def test_every_page_can_be_reached_and_loads_nothing_from_elsewhere(site):
    home = (site / "index.html").read_text(encoding="utf-8")
    pages = [
        path.relative_to(site).as_posix()
        for path in site.rglob("*.html")
        if path.name != "404.html"
    ]
    assert len(pages) > 15
    assert [page for page in pages if f'href="{page}"' not in home and page != "index.html"] == []
    for page in pages:
        text = (site / page).read_text(encoding="utf-8")
        assert re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="https?:[^"]*"', text) == [], page


def test_every_setting_is_there_with_its_meaning(site):
    text = "".join(
        (site / "reference" / f"{name}.html").read_text()
        for name in ("settings", "methods", "optimizers")
    )
    rows = dict(re.findall(r"<td><code>([\w.]+)</code></td>\n.*\n.*\n<td>(.*)</td>", text))
    keys = [key for key in settings() if not key.startswith(("methods", "optimizer", "published"))]
    sections = {key.rpartition(".")[0] for key in keys}
    assert [key for key in keys if key not in sections and not rows.get(key)] == []
    cards = {f"methods.{cls.name}.{item.name}" for cls in ORDER for item in fields(cls)}
    cards |= {
        f"optimizer.{item.name}"
        for cls in OPTIMIZERS
        for item in fields(cls)
        if item.name != "name"
    }
    assert [key for key in cards if not rows.get(key)] == []


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("methods", [cls.name for cls in ORDER]),
        ("optimizers", [cls.name for cls in OPTIMIZERS]),
        ("recipes", sorted(path.stem for path in packaged_folder().glob("*.yaml"))),
        ("commands", ["resnet-train", *(f"resnet-recipes-{name}" for name in VERBS)]),
    ],
)
def test_a_page_read_from_the_code_has_a_section_for_each_name(site, page, names):
    text = (site / "reference" / f"{page}.html").read_text(encoding="utf-8")
    assert re.findall(r'<h2 id="([\w-]+)"', text) == names


def test_the_search_needs_no_server(site):
    assert (site / "search" / "search_index.js").stat().st_size > 100_000
    assert '<script src="iframe-worker.js"' in (site / "index.html").read_text(encoding="utf-8")


def test_the_readme_is_short_and_its_pictures_and_links_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    places = re.findall(r"\]\(([^)]+)\)", text)
    assert [place for place in places if not (ROOT / place).exists()] == []
    assert {"docs/published.png", "docs/plan.svg"} <= set(places)


def test_the_terminal_of_the_readme_shows_what_the_command_prints_now(
    capsys, monkeypatch, tmp_path
):
    """As on a machine without a GPU, on which nothing was measured."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name, value in (("count", 0), ("first", ("", "")), ("memory", 0)):
        monkeypatch.setattr(gpus, name, lambda value=value: value)
    assert cli.main(["plan", "mild", "gpus=8"]) == 0
    drawn = html.unescape(re.sub(r"<[^>]+>", " ", (ROOT / "docs/plan.svg").read_text()))
    shown = " ".join(drawn.replace("\xa0", " ").split())
    for line in capsys.readouterr().out.splitlines():
        assert " ".join(line.split()) in shown
