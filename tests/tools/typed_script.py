"""A user's script for type checkers: every public name, and mistakes that they must find."""

from pathlib import Path

import torch
from torch import nn

import resnet_recipes as rr


def train() -> Path:
    recipe = rr.compose("demo", "~methods.ema", data="images", epochs=2)
    recipe.model.name = "resnet18"
    recipe.optimizer.lr = 0.1
    recipe.optimizer = rr.optim.LAMB(lr=0.005, betas=(0.9, 0.99))
    recipe.methods.mixup = rr.methods.MixUp(alpha=0.1)
    recipe.methods.mixup.alpha = 0.2
    recipe.batchsize = 3  # type: ignore[attr-defined]
    recipe.data.train_size = 32.5  # type: ignore[assignment]
    recipe.optimizer.lr = "high"  # type: ignore[assignment]
    recipe.methods.mixup = "on"  # type: ignore[assignment]
    planned = rr.plan(recipe, ranks=2)
    steps: int = planned.total_steps
    folder: Path = rr.prepare(recipe, planned, command=("python", "train.py"))
    run = rr.train(recipe, lambda record: record["kind"] == "step")
    print(steps, folder, run.summary["raw_top1_percent"])
    return run.folder


def use_trained_run(folder: Path) -> None:
    network = rr.load(folder)
    logits: torch.Tensor = network(network.transform("a.png")[None])
    print(network.classes[int(logits.argmax())])
    evaluation = rr.evaluate(folder, "evaluation.flip=true", workers=0)
    top1: float = evaluation.metrics.top1
    print(top1, evaluation.confusion.mistakes(5))
    for prediction in rr.predict(folder, ["images/val"]):
        print(prediction.file, prediction.classes[0] if prediction.classes else prediction.error)


def use_methods(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    now = rr.methods.Now.at(3, total_steps=900, steps_per_epoch=100)
    batch = rr.methods.Batch.of(images, labels, num_classes=10)
    methods: list[rr.methods.Method] = [rr.methods.MixUp(alpha=0.2), rr.methods.CutMix()]
    for method in methods:
        batch = method.transform_batch(batch, now)
    rr.methods.MixUp(alfa=0.2)  # type: ignore[call-arg]
    return rr.methods.BCELoss().loss(model(batch.images), batch.targets)


def build_optimizers(model: nn.Module) -> list[torch.optim.Optimizer]:
    settings: list[rr.optim.OptimizerSettings] = [
        rr.optim.AdamW(),
        rr.optim.DecoupledSGDW(),
        rr.optim.LAMB(no_decay="norm_layers"),
        rr.optim.LARS(),
        rr.optim.SGD(momentum=0.9),
        rr.optim.SGD(lr="high"),  # type: ignore[arg-type]
    ]
    return [section.build(model) for section in settings]


def open_loader() -> torch.Tensor:
    config = rr.data.DataConfig(root="images", train_size=64, workers=2)
    facts = rr.data.survey_images(config)
    batching = rr.data.Batching(rank=0, world_size=1, global_size=4, eval_size=4, seed=0)
    loader = rr.data.open_train(config, facts, batching)
    batch = next(loader.batches())
    loader.close()
    return rr.data.normalize(batch.pixels)


try:
    use_trained_run(train())
except rr.RecipeError as error:
    print([problem.key for problem in error.problems])
