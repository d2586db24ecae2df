"""Run folders without training, for tests that read, resume or evaluate runs."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from resnet_recipes import data
from resnet_recipes.data.base import DataFacts
from resnet_recipes.network import about
from resnet_recipes.network.weights import write_weights
from resnet_recipes.recipe.frozen_recipe import freeze
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.run_folder import WEIGHTS
from resnet_recipes.run_folder.lock import LockedFolder
from resnet_recipes.training.run import Run
from tests.shared.images import CLASSES, create_random_images

#: Contents of the files that all runs have in common.
COMMON_CONTENT = json.loads(
    """{
"env": {"python": "3.12.1", "packages": {"torch": "2.11.0"}, "machine": {"cores": 2}},
"begin": {"kind": "begin", "step": 0, "epoch": 0.0, "devices": "8 x A100", "startup_seconds": 1.0,
    "training_seconds": 0, "wall_seconds": 5.0},
"step": {"kind": "step", "lr": 0.1, "images_per_second": 900.0, "data_wait_share": 0.1,
    "seconds_left": 290.0},
"evaluation": {"kind": "evaluation", "step": 40, "epoch": 4.0, "raw_top1_percent": 1.0,
    "examples": 50000, "seconds": 10.0, "wall_seconds": 300.0},
"summary": {"raw_top1_percent": 1.0, "devices": "8 x A100", "training_pflops": 1250.0,
    "training_seconds": 240.0, "steady_state_seconds": 230.0, "mlperf_seconds": 270.0,
    "wall_seconds": 300.0, "evaluation_seconds": 40.0, "checkpoint_seconds": 10.0,
    "startup_seconds": 10.0, "data_wait_share": 0.25}
}"""
)


def create_unstarted_run(folder: Path, recipe: Recipe, facts: DataFacts | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    facts = facts or data.survey_images(recipe.data)
    (folder / "config.yaml").write_text(freeze(recipe))
    (folder / "data.json").write_text(facts.to_json())
    return folder


def create_folder_with_weights(
    make_run: Callable[..., Run], folder: Path, classes: Sequence[str] = CLASSES, **changes: object
) -> Path:
    """Create a folder with the recipe of a run and random weights, but no records; return it.

    Its images are in `images` next to it.
    """
    images = create_random_images(folder.parent / "images", classes)
    run = make_run(**changes)
    recipe = run.plan.recipe
    folder.mkdir()
    described = about.describe(recipe, tuple(classes), len(classes), 2.0)
    write_weights(run.model, folder / WEIGHTS, described)
    recipe.data.root = str(images)
    recipe.data.backend = "torchvision"
    recipe.data.workers = 0
    (folder / "config.yaml").write_text(freeze(recipe))
    (folder / "overrides.txt").touch()
    return folder


def create_run_folder(
    root: Path,
    name: str,
    recipe: str = "mild",
    top1: float | None = 70.0,
    seed: int = 1,
    epochs: float = 4.0,
    state: str = "finished",
    config: dict[str, Any] | None = None,
    image_count: int = 1_281_167,
) -> Path:
    """Create the folder of a run that finished, was stopped, failed or was killed; return it."""
    folder = root / name
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "data.json").write_text(json.dumps({"train_examples": image_count}))
    (folder / "overrides.txt").write_text(f"seed={seed}\n")
    (folder / "command.txt").write_text(f"resnet-train recipe={recipe} seed={seed} run={name}\n")
    (folder / "provenance.json").write_text(json.dumps({"recipe": recipe}))
    (folder / "env.json").write_text(json.dumps(COMMON_CONTENT["env"]))
    settings = {
        "name": recipe,
        "seed": seed,
        "run": {"name": name},
        "optimizer": {"lr": 2.0},
        "data": {"root": "/data/pets"},
        "methods": {"ema": {}},
    } | (config or {})
    (folder / "config.yaml").write_text(json.dumps(settings))  # JSON is YAML, and faster to write
    steps = [
        COMMON_CONTENT["step"]
        | {"step": step, "epoch": step / 10, "loss": 3 / step, "pixels": 88 + step // 10}
        | {"training_seconds": 6.0 * step, "wall_seconds": 7.0 * step}
        for step in range(1, 41)
    ]
    evaluation = COMMON_CONTENT["evaluation"] | {"ema_top1_percent": top1}
    price = {"price_per_hour": settings.get("launch", {}).get("price")}
    records = [COMMON_CONTENT["begin"] | {"epochs": epochs} | price, *steps, evaluation]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    if state == "finished":
        results = {"recipe": recipe, "ema_top1_percent": top1, "epochs": epochs} | price
        (folder / "summary.json").write_text(json.dumps(COMMON_CONTENT["summary"] | results))
    else:
        (folder / "checkpoints" / "step-00000040.json").write_text('{"bytes": 0}')
        (folder / "checkpoints" / "step-00000040.pt").touch()
    if state in ("stopped", "failed"):
        (folder / "exit.json").write_text(
            json.dumps({"code": 75 if state == "stopped" else 1, "message": f"it {state}"})
        )
    return folder


def release_and_record(held: LockedFolder, folders: list[Path]) -> None:
    with held:
        folders.append(held.path.resolve())
