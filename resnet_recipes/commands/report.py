"""`resnet-recipes report [RUN|FOLDER ...]`: the curves of runs over the published results, as one HTML page."""

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

from resnet_recipes.base import atomic
from resnet_recipes.base.errors import NotReadyError, Problem, RecipeError
from resnet_recipes.commands.arguments import Arguments, Usage
from resnet_recipes.commands.progress import say
from resnet_recipes.commands.runs import listed, price_of
from resnet_recipes.measure.runs import RunRecord, read_run
from resnet_recipes.measure.sections import sections_of
from resnet_recipes.report.page.html import Section, page

USAGE = Usage(
    "resnet-recipes report [RUN|FOLDER ...]",
    "draw the curves of runs over the published results, as one HTML page that needs no network",
    "resnet-recipes report runs --price 32.77 --out report.html",
    {
        "--out FILE": "the page (default report.html)",
        "--price PER_HOUR": "also plot accuracy against cost",
        "--published": "only the published results",
        "--png FOLDER": "also write every plot as a picture",
    },
)


def run(arguments: Arguments) -> int:
    """Write the page, and with --png each plot as a picture."""
    price = price_of(arguments.flags.get("--price"))
    out = Path(arguments.flags.get("--out", "report.html"))
    if arguments.words and "--published" in arguments:
        raise RecipeError(
            [Problem("--published", None, "takes no runs: it only plots the published results")]
        )
    plotting("report")
    runs = [] if "--published" in arguments else list(_runs(arguments.words or ["runs"]))
    sections = list(sections_of(runs, price))
    counted = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    title = "Published results of ResNet-50 on ImageNet" if "--published" in arguments else counted
    try:
        atomic.write_text(out, page(title, sections))
        if folder := arguments.flags.get("--png"):
            _write_pictures(Path(folder), sections)
    except OSError as error:
        raise NotReadyError(
            [Problem("--out", str(out), f"cannot be written: {error.strerror}", "--out FILE")]
        ) from None
    say(f"{out}: {counted}, {out.stat().st_size / 1e6:.1f} MB")
    return 0


def plotting(key: str) -> ModuleType:
    """Return the plotting library, which `key` needs. Raises NotReadyError if it is missing."""
    try:
        import vl_convert
    except ImportError:
        rule = "needs the plotting library, which is not installed"
        raise NotReadyError(
            [Problem(key, None, rule, "pip install 'resnet-recipes[report]'")]
        ) from None
    return vl_convert


def _runs(words: Sequence[str]) -> Iterator[RunRecord]:
    """Yield the runs that the words name: run folders, and folders of run folders."""
    for word in words:
        one = read_run(Path(word))
        yield from [one] if one else listed(Path(word))


def _write_pictures(folder: Path, sections: Sequence[Section]) -> None:
    """Write every plot as a PNG, with a palette, which looks the same at a tenth of the size."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    for figure in (figure for section in sections for figure in section.figures):
        drawn = plotting("--png").vegalite_to_png(json.dumps(figure.spec | {"width": 760}), scale=2)
        picture = Image.open(io.BytesIO(drawn)).convert("RGB").quantize(256)
        with atomic.replacing(folder / f"{figure.name}.png") as file:
            picture.save(file, "PNG", optimize=True)
