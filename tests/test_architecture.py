"""The pages that describe the house say what the source says."""

import re

from tests.sources import ROOT
from tests.test_layers import TIERS

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "resnet_recipes"


def test_every_file_that_the_page_on_architecture_names_exists():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w./]+\.(?:py|yaml))`", page))
    assert len(named) > 50
    assert [
        name for name in named if not (PACKAGE / name).exists() and not (ROOT / name).exists()
    ] == []


def test_the_map_has_every_room_and_no_other():
    lines = CONTRIBUTING.partition("\nresnet_recipes/\n")[2].partition("\ntests/")[0].splitlines()
    mapped = {
        name
        for line in lines
        for name in re.findall(r"[\w.]+", line[2:29])
        if re.match(r" {2}\S", line)
    }
    folders = (path for path in PACKAGE.iterdir() if not path.is_symlink())  # recipes/ is one
    rooms = {path.name for path in folders if (path / "__init__.py").exists()}
    files = {path.name for path in PACKAGE.glob("[!_]*.py")}
    assert mapped == rooms | files


def test_the_layers_are_written_down_as_they_are_checked():
    sentence = CONTRIBUTING.partition("imports only from parts below it: ")[2].partition(".\n")[0]
    written = [set(re.findall(r"`(\w+)`", layer)) for layer in sentence.split(">")]
    assert written[::-1] == [layer - {""} for layer in TIERS if layer != {"__main__"}]
