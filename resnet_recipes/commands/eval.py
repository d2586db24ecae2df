"""`resnet-recipes eval RUN|FILE`: the accuracy of a trained network, by class and by image size."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resnet_recipes.base.error_collector import ErrorCollector
from resnet_recipes.base.errors import BadValidationImageError, Command, NotReadyError, RecipeError
from resnet_recipes.base.text import (
    escape_controls,
    format_count,
    format_csv_line,
    format_facts,
    format_number,
)
from resnet_recipes.command_line.arguments import Arguments
from resnet_recipes.command_line.printing import (
    format_table,
    get_line_width,
    open_output,
    say,
    show,
)
from resnet_recipes.command_line.run_arguments import check_network, is_run, open_trained_network
from resnet_recipes.command_line.usage import RUN_HELP, Scope, Usage
from resnet_recipes.jobs.lookup import find_run
from resnet_recipes.report.page.charts import draw_png, import_plotting
from resnet_recipes.report.paired_difference import compute_accuracy_interval
from resnet_recipes.run_folder import DATA

if TYPE_CHECKING:
    from resnet_recipes.inference.trained_network import EvaluationResult, TrainedNetwork
    from resnet_recipes.training.outcomes import ConfusionCell, Means, Outcomes

USAGE = Usage(
    "resnet-recipes eval RUN|FILE ... [data=PATH] [key=value ...]",
    "evaluate a network: accuracy, classes and confusions",
    "resnet-recipes eval last",
    {
        "--json": "print everything as JSON",
        "--csv FILE.csv": "also write the accuracy of each class, or of each size, as CSV",
        "--png FILE.png": "plot the confusion matrix and the accuracy of the 40 worst classes",
        "--images FILE.csv": "write prediction, probability and loss of each image as CSV",
        "--gallery FILE.html": "write an HTML page of the most confident mistakes",
    },
    f"""\
{RUN_HELP} FILE is a checkpoint, a
weights file of this program, or a .pt, .pth or .safetensors file of another program. For
such files, add model.name=timm:NAME or torchvision:NAME, except for torchvision ResNets.
timm:NAME and torchvision:NAME also work in place of FILE, if their weights are on this
machine. PATH is a folder with val/, val.beton or class folders, or a table of labels
(default: the images of the run). All GPUs are used; gpus=1 uses one.

Settings: data.eval_size, data.eval_resize, evaluation.flip, batch.eval_size,
precision.dtype, launch.device, workers, gpus. 'evaluation.sizes=[192,224,256,288]'
prints one row per test size in pixels; images are resized in proportion.
Runs with data.fold=1/5, 2/5 ... are pooled: each image counts once.""",
    settings=Scope.NETWORK,
)

_MAX_SHOWN = 10  # classes and confusions to print
_MAX_PLOTTED = 40  # classes in the plot
_IN_GALLERY = 100  # images in the gallery

ResultRow = dict[str, Any]


def check(arguments: Arguments) -> None:
    """Raise RecipeError if a network does not exist, or if a plot cannot be drawn."""
    errors = ErrorCollector()
    with errors:
        check_network(arguments.positional, USAGE)
    for argument in arguments.positional[1:]:
        if "=" not in argument:
            with errors:
                find_run(argument)
    with errors:
        if "--png" in arguments:
            import_plotting()
    errors.raise_if_any()


def run(arguments: Arguments) -> int:
    """Evaluate and print the result."""
    first, *rest = arguments.positional
    sources = [first, *filter(is_run, rest)]
    changes = [argument for argument in rest if not is_run(argument)]
    networks = list["TrainedNetwork"]()
    errors = ErrorCollector()
    for source in sources:
        with errors:
            networks.append(open_trained_network([source, *changes], USAGE))
    errors.raise_if_any()
    from resnet_recipes.data import require_trusted_url
    from resnet_recipes.inference.network_pool import check_pool, pool_results
    from resnet_recipes.jobs.checks import check_validation_folder
    from resnet_recipes.jobs.evaluate import evaluate

    recipe = networks[0].recipe
    data, sizes = recipe.data, recipe.evaluation.sizes
    for source, network in zip(sources, networks, strict=True):
        command = Command.of("resnet-recipes", "eval", source)
        require_trusted_url(network.recipe.data, changes, command)
    for flag in ("--png", "--images", "--gallery") if sizes else ():
        if flag in arguments:
            clause = f"is for one test size, but evaluation.sizes is {sizes}"
            raise RecipeError.of(flag, arguments.flags[flag], clause, "'evaluation.sizes=[]'")
    if len(networks) > 1:
        check_pool(networks, sources)
    test_sizes = sizes or [data.eval_size]
    try:
        by_network = [evaluate(network, test_sizes, say) for network in networks]
    except BadValidationImageError:
        if Path(data.root, "val").is_dir():
            check_validation_folder(data)  # counts all unreadable images
        raise
    for source, network, (result, *_) in zip(sources, networks, by_network, strict=True):
        if _has_training_images(network, result.metrics.examples):
            say(f"note: {data.root} may contain training images of {source}")
    results = [pool_results(group) for group in zip(*by_network, strict=True)]
    rows = [
        _make_row(networks, size, result) for size, result in zip(test_sizes, results, strict=True)
    ]
    if sizes:
        num_classes = networks[0].network.about.num_classes
        show(arguments, rows, _format_sizes(rows, num_classes), rows)
    else:
        _print_classes(arguments, networks, rows[0], results[0].outcomes)
    return 0


def _has_training_images(network: "TrainedNetwork", examples: int) -> bool:
    """Return whether these other images may include the training images of a run's split.

    False if a training image is missing, by its file name and size.
    """
    from resnet_recipes.data.base import DataFacts
    from resnet_recipes.data.files.layout import list_split
    from resnet_recipes.inference.images import list_files
    from resnet_recipes.inference.trained_network import find_run, make_recipe

    run = find_run(network.path)
    original = make_recipe(network.path, network.network).data
    evaluated = network.recipe.data
    if not (run and original.sets_aside) or evaluated.sets_aside:
        return False
    try:
        facts = DataFacts.read(run / DATA, original.root)
        if examples < facts.train_examples:
            return False
        train = list_split(original, "train")
        images = list_files(evaluated, Path(evaluated.root))
    except (NotReadyError, OSError):
        return True
    ours, others = (
        {*zip(map(os.path.basename, listing.names), listing.sizes.tolist(), strict=True)}
        for listing in (train, images)
    )
    is_unknown = not others or train.digest != facts.train_digest  # .beton, or changed images
    return is_unknown or ours <= others


def _print_classes(
    arguments: Arguments,
    networks: "Sequence[TrainedNetwork]",
    result: ResultRow,
    outcomes: "Outcomes",
) -> None:
    from resnet_recipes.report.page.charts import plot_classes
    from resnet_recipes.training.outcomes import Confusion

    class_name = networks[0].network.about.class_name
    confusion = Confusion(outcomes)

    def name_cells(cells: "Iterable[ConfusionCell]") -> list[ResultRow]:
        return [
            {
                "class": class_name(cell.label),
                "predicted": class_name(cell.predicted),
                "images": cell.images,
            }
            for cell in cells
        ]

    classes = [
        {
            "class": class_name(row.label),
            "images": row.images,
            "correct": row.correct,
            "top1_percent": row.recall_percent,
            "precision_percent": row.precision_percent,
            "recall_percent": row.recall_percent,
            "f1_percent": row.f1_percent,
        }
        for row in confusion.classes()
    ]
    means = confusion.means()
    wrong = name_cells(confusion.mistakes(_MAX_SHOWN))
    show(
        arguments,
        {
            **result,
            **{name: mean._asdict() for name, mean in means.items()},
            "classes": classes,
            "confusions": wrong,
        },
        [*_describe(networks, result, means["macro"]), *_format_tables(classes, wrong)],
        classes,
    )
    if name := arguments.flags.get("--png"):
        with open_output("--png", name) as file:
            file.write(
                draw_png(plot_classes(classes[:_MAX_PLOTTED], name_cells(confusion.cells())))
            )
    _write_images(arguments, networks, outcomes)


def _write_images(
    arguments: Arguments, networks: "Sequence[TrainedNetwork]", outcomes: "Outcomes"
) -> None:
    table = arguments.flags.get("--images")
    page = arguments.flags.get("--gallery")
    if not table and not page:
        return
    from resnet_recipes.inference.network_pool import open_pool
    from resnet_recipes.report.page.html import Tile, build_gallery

    class_name = networks[0].network.about.class_name
    with open_pool(networks) as images:
        fields = (field.tolist() for field in outcomes)
        rows = [
            (image.path, class_name(label), class_name(best), probability, loss)
            for image, label, best, probability, loss in zip(images, *fields, strict=True)
        ]
        if table:
            with open_output("--images", table) as file:
                file.write(
                    format_csv_line(["path", "label", "prediction", "probability", "loss"]).encode()
                )
                for *names, probability, loss in rows:
                    file.write(
                        format_csv_line([*names, f"{probability:.6f}", f"{loss:.6f}"]).encode()
                    )
        if page:
            worst = outcomes.find_confident_errors(_IN_GALLERY)
            wrong = int((outcomes.predicted != outcomes.labels).sum())
            text = (
                f"{wrong:,} of {len(rows):,} images were classified wrongly; the {len(worst):,} "
                "most confident are below"
            )
            tiles = [
                Tile(images[index].make_picture(int(outcomes.predicted[index])), *rows[index][:4])
                for index in worst
            ]
            with open_output("--gallery", page) as file:
                file.write(build_gallery("Most confidently wrong", text, tiles).encode())


def _make_row(
    networks: "Sequence[TrainedNetwork]", size: int, result: "EvaluationResult"
) -> ResultRow:
    recipe = networks[0].recipe
    top1, top5, loss, examples, balanced = result.metrics
    interval = compute_accuracy_interval(round(top1 * examples / 100), examples)
    return {
        "network": " ".join(str(network.path) for network in networks),
        "data": recipe.data.root,
        "eval_size": size,
        "eval_resize": recipe.data.resize_for(size),
        "flip": recipe.evaluation.flip,
        "top1_percent": top1,
        "top1_interval_percent": [round(end, 3) for end in interval],
        "top5_percent": top5,
        "balanced_percent": balanced,
        "calibration_error_percent": result.outcomes.calibration_error_percent,
        "loss": loss,
        "eval_examples": examples,
        "images_per_second": examples / result.seconds,
        "device": result.device,
    }


def _describe(networks: "Sequence[TrainedNetwork]", result: ResultRow, means: "Means") -> list[str]:
    network = networks[0]
    about, data = network.network.about, network.recipe.data
    recipe = f", recipe {about.recipe}" if about.recipe else ""
    if len(networks) > 1:
        recipe += f", {len(networks)} runs"
    low, high = result["top1_interval_percent"]
    fit = "" if data.fit == "crop" else f"{data.fit}, "
    flip = ", averaged with the horizontal flip" if result["flip"] else ""
    top1, balanced = (f"{result[f'{name}_percent']:.2f}%" for name in ("top1", "balanced"))
    facts = {
        "network": f"{about.title}, {about.num_classes:,} classes{recipe}",
        "images": f"{result['eval_examples']:,} of {result['data']}",
        "pixels": f"{result['eval_size']} (resize to {result['eval_resize']}, {fit}center crop)"
        f"{flip}",
        "top-1": f"{top1}, 95% interval {low:.1f} to {high:.1f}%",
        "top-5": f"{result['top5_percent']:.2f}%",
        "balanced": f"{balanced}, the mean over classes of their top-1",
        "precision": f"{means.precision:.2f}%, the mean over classes",
        "F1": f"{means.f1:.2f}%, the mean over classes",
        "loss": f"{result['loss']:.4f}",
        "ECE": f"{result['calibration_error_percent']:.2f}%, the expected calibration error",
        "speed": f"{format_number(result['images_per_second'])} images/s on {result['device']}",
    }
    if about.num_classes <= 5:
        del facts["top-5"]  # always 100% with few classes
    if balanced == top1:
        del facts["balanced"]
    return format_facts(facts.items(), get_line_width(), 11)


def _format_tables(classes: Sequence[ResultRow], wrong: Sequence[ResultRow]) -> Iterator[str]:
    some = f"{_MAX_SHOWN} of " if len(classes) > _MAX_SHOWN else ""
    yield from ("", f"{some}{format_count(len(classes), 'class')}, worst first")
    yield from format_table(
        [
            {
                "TOP-1": f"{row['top1_percent']:.2f}%",
                "IMAGES": f"{row['images']:,}",
                "PRECISION": f"{row['precision_percent']:.2f}%",
                "F1": f"{row['f1_percent']:.2f}%",
                "CLASS": escape_controls(row["class"]),
            }
            for row in classes[:_MAX_SHOWN]
        ],
        ("PRECISION", "F1"),
    )
    if wrong:
        yield from ("", "most common confusions")
        yield from format_table(
            [
                {
                    "IMAGES": f"{row['images']:,}",
                    "CLASS": escape_controls(row["class"]),
                    "PREDICTED AS": escape_controls(row["predicted"]),
                }
                for row in wrong
            ]
        )


def _format_sizes(rows: Sequence[ResultRow], num_classes: int) -> list[str]:
    cells = [
        {
            "PX": str(row["eval_size"]),
            "RESIZE": str(row["eval_resize"]),
            "TOP-1": f"{row['top1_percent']:.2f}%",
            **({"TOP-5": f"{row['top5_percent']:.2f}%"} if num_classes > 5 else {}),
            "LOSS": f"{row['loss']:.4f}",
            "IMAGES/S": format_number(row["images_per_second"]),
        }
        for row in rows
    ]
    return format_table(cells, ("RESIZE", "IMAGES/S"))
