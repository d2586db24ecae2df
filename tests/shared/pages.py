"""The pages of the documentation and their code blocks, for tests of pages and commands."""

import re
from collections.abc import Iterator

from tests.shared.sources import ROOT

PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
}


def iterate_code_blocks(page: str, *languages: str) -> Iterator[tuple[str, str]]:
    """Yield language and text of the code blocks in these languages; "" means unlabeled.

    A command in a table counts as an unlabeled block.
    """
    for language, block in re.findall(
        r"^```(\w*)[^\n]*\n(.*?)^```", PAGES[page], re.DOTALL | re.MULTILINE
    ):
        if language in languages:
            yield language, block
    if "" in languages:  # a cell that contains only a command without a placeholder
        for command in re.findall(r"(?<=\| )`(resnet-[^`]*[/=][^`]*)`(?= \|)", PAGES[page]):
            yield "", command
