"""`resnet-recipes report`: runs and published results in one HTML page."""

import shlex

from resnet_recipes.base.error_collector import ErrorCollector
from resnet_recipes.base.errors import Command, RecipeError
from resnet_recipes.base.paths import parse_new_path, parse_path
from resnet_recipes.base.text import format_count
from resnet_recipes.command_line.arguments import Arguments
from resnet_recipes.command_line.output_files import check_output_file, is_ours
from resnet_recipes.command_line.printing import open_output, say
from resnet_recipes.command_line.run_arguments import is_run, list_records
from resnet_recipes.command_line.usage import RUN_HELP, Usage
from resnet_recipes.commands.runs import read_price
from resnet_recipes.report.comparison import read_all
from resnet_recipes.report.page.charts import import_plotting, write_pictures
from resnet_recipes.report.page.html import build_page
from resnet_recipes.report.sections import build_sections
from resnet_recipes.run_folder import CONFIG
from resnet_recipes.run_folder.runs import RunRecord

USAGE = Usage(
    "resnet-recipes report [RUN|FOLDER ...]",
    "plot runs in one self-contained HTML page",
    "resnet-recipes report runs --price 32.77 --out report.html",
    {
        "--out FILE.html": "write FILE.html (default report.html); an older report is replaced",
        "--price PER_HOUR": "price of the machine per hour, to plot accuracy against cost "
        "(default launch.price, if all runs share it)",
        "--published": "plot only the published results",
        "--png FOLDER": "also write each plot as a PNG file; older ones are replaced",
    },
    f"{RUN_HELP} FOLDER is a folder of runs (default ./runs).",
)

_PAGE = "report.html"  # the default of --out
_PUBLISHED = Command("resnet-recipes report --published")


def check(arguments: Arguments) -> tuple[list[RunRecord], float | None]:
    """Return the runs to plot and the price per hour.

    Raises RecipeError if a flag is wrong, a run is missing or an output file is not ours.
    """
    flags = arguments.flags
    for name in arguments.positional:
        if name.endswith(".html") and not is_run(name):
            use = f"--out {shlex.quote(name)}"
            raise RecipeError.of("RUN|FOLDER", name, "is a page, not a run", use)
    errors = ErrorCollector()
    is_new = not is_ours("--out", parse_path("--out", flags.get("--out", _PAGE)))
    with errors:
        price = read_price(flags.get("--price"))
    with errors:
        check_output_file("--out", flags.get("--out", _PAGE), ".html")
    with errors:
        if folder := flags.get("--png"):
            path = parse_path("--png", folder)
            if (path / CONFIG).is_file():
                words = *(arguments.positional or [folder]), "--png", "plots"
                clause = "is a run; pass a folder for plots"
                raise RecipeError.of("--png", folder, clause, Command.of(*USAGE.command, *words))
            if not path.is_dir() or (is_new and any(path.glob("*.png"))):
                parse_new_path("--png", folder, is_folder=True)
            import_plotting()
    with errors:
        if arguments.positional and "--published" in flags:
            clause = "cannot be combined with runs"
            fix = (_PUBLISHED, Command.of("resnet-recipes", "report", *arguments.positional))
            raise RecipeError.of("--published", None, clause, fix)
        runs = _find_runs(arguments)
    errors.raise_if_any()
    return runs, price


def _find_runs(arguments: Arguments) -> list[RunRecord]:
    """Return the runs to plot. Raises NotReadyError if there are none, or all are unreadable."""
    if "--published" in arguments:
        return []
    runs = list_records(arguments.positional or ["runs"])
    if all(run.state == "unreadable" for run in runs):
        read_all(run.folder for run in runs)
    return runs


def run(arguments: Arguments, runs: list[RunRecord], price: float | None) -> int:
    """Write the page; with --png also write each plot as an image."""
    sections = list(build_sections(runs, price))
    title = format_count(len(runs), "run")
    if "--published" in arguments:
        title = "published results of ResNet-50 on ImageNet"
    elif len(runs) == 1:
        title = f"Run {runs[0].name}"
    elif len(roots := {run.folder.resolve().parent for run in runs}) == 1:
        title += f" in {'/'.join(roots.pop().parts[-2:])}"
    with open_output("--out", arguments.flags.get("--out", _PAGE)) as file:
        file.write(build_page(title[0].upper() + title[1:], sections).encode())
        if pictures := arguments.flags.get("--png"):
            figures = [figure for section in sections for figure in section.figures]
            folder = parse_path("--png", pictures)
            write_pictures(folder, {figure.name: figure.spec for figure in figures})
            say(f"saved {format_count(len(figures), 'plot')} in {pictures}")
    return 0
