"""Notes of a plan on settings that rarely help."""

import re
from dataclasses import replace

import pytest

from resnet_recipes.base.errors import RecipeError
from resnet_recipes.planning.plan import IMAGENET_FACTS
from resnet_recipes.planning.planner import make_plan
from resnet_recipes.recipe.compose import compose
from tests.shared.checks import get_error
from tests.shared.plans import plan_imagenet
from tests.shared.tables import parse_rows


def format_plan_notes(line: str) -> str:
    """Return the notes of a packaged recipe with changes, on ImageNet and usually eight GPUs."""
    ranks = re.findall(r"\bgpus=(\d+)", line) or [8]
    rows = (row for note in plan_imagenet(line, int(ranks[0])).notes for row in note.list_rows())
    return "\n".join(text for _, text in rows)


@pytest.mark.parametrize(
    "line",
    """
mild
medium
hot
finetune bs=8 gpus=1
finetune lr=0.05 gpus=1
finetune lr=1e-5 gpus=1
finetune optimizer=sgd lr=1 gpus=1
demo lr=0.2 gpus=1
mild bs=256 gpus=1 run.extends=first
medium epochs=60
hot epochs=240
mild epochs=16
mild optimizer=lamb
""".strip().splitlines(),
)
def test_published_recipe_and_usual_setting_get_no_advice(line):
    assert format_plan_notes(line) == ""


@pytest.mark.parametrize(
    ("line", "expected"),
    parse_rows(
        """
mild epochs=15 | the warm-up takes 53% of the run, because schedule.warmup=8ep does not shrink
medium epochs=59 | mixup with label_smoothing lowers accuracy
hot epochs=179 | recipe=medium
hot epochs=18 | recipe=mild
hot epochs=180 | methods.sam.interval=5 is slower than methods.sam.interval=10
mild max_duration=900ba ssr=1 schedule.warmup=1ba | updated every 20 steps) for a run of 900
mild epochs=16 methods.ema.update_interval=2000ba | weights will lag\\nmethods.ema.half_life=200ba
mild methods.ema.update_interval=500ba | little more than the latest weights
mild epochs=3 schedule.warmup=0.1dur | (148 of 176 pixels in the last epoch)\\nepochs=5
mild bs=204800 gpus=1 | has only 6 steps; a smaller batch gives more\\nbs=19200 lr=19.2
mild gpus=16 | batch.bn_size=256 is more than the 128 images
mild evaluation.sizes=[192,256] | during training, the test size is data.eval_size=224
mild bs=256 gpus=1 | is 8 times the usual learning rate of mild for a batch of 256\\nlr=0.256
demo lr=0.8 gpus=1 | lr=0.8 is 8 times the usual learning rate of demo for a batch of 32\\nlr=0.1
pytorch_v1 epochs=45 | falls less often\\n'schedule.milestones=[0.333dur,0.667dur]'
mild optimizer.name=sgd | such as weight_decay=0.0005; optimizer=sgd sets its own\\noptimizer=sgd
mild optimizer.name=sgd lr=30 | of the optimizer sgd for a batch of 2048\\nlr=2.05
mild optimizer=lamb lr=1.7 | of the optimizer lamb for a batch of 2048\\nlr=0.005
mild optimizer=adamw lr=1.7 | of the optimizer adamw for a batch of 2048\\nlr=0.001
mild optimizer=lars lr=0.5 | of the optimizer lars for a batch of 2048\\nlr=8.3
finetune lr=1 bs=64 gpus=1 | lr=1 is 50 times the usual learning rate of finetune for a batch of 64
finetune lr=1 bs=64 gpus=1 | for a batch of 64\\nlr=0.02
finetune model.freeze=none model.freeze_bn=false bs=8 gpus=1 | batch.bn_size
mild methods.progressive_resizing.finetune=0dur methods.progressive_resizing.delay=0.8dur | \
methods.progressive_resizing.finetune=0.2dur\\n'~methods.progressive_resizing'
"""
    ),
)
def test_notes_name_settings_that_rarely_help(line, expected):
    notes = format_plan_notes(line)
    assert expected.replace("\\n", "\n") in notes
    assert not re.search(r"\.$|^[A-Z][a-z]", notes, re.MULTILINE)


def test_reference_in_the_batch_uses_the_usual_lr(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").mkdir()
    text = "defaults: [mild]\nbatch: {global_size: '${batch.eval_size}'}\n"
    (tmp_path / "recipes/mine.yaml").write_text(text)
    notes = format_plan_notes("mine lr=100 gpus=1")
    assert "the usual learning rate of the optimizer decoupled_sgdw" in notes


def test_advised_learning_rate_scales_with_its_batch():
    advice = format_plan_notes("mild bs=204800 optimizer.lr=102.4 gpus=1")
    assert "\nbs=19200 lr=9.6\n" in advice
    few = replace(IMAGENET_FACTS, train_examples=100)
    for arguments, fix in (
        (["lr=0.1"], "bs=16 lr=0.000781"),
        (["lr=0.1", "bs=256"], "bs=16 lr=0.00625"),
        (["epochs=18"], "bs=16 lr=0.016"),
        (["bs=300"], "bs=16 lr=0.016"),  # 2.048 is for the batch of 2048 in the file
        (["optimizer=lamb"], "bs=16 lr=0.000442"),  # scaled by the square root of 16 / 2048
    ):
        composed = compose("mild", arguments, needs_data=False)
        error = get_error(RecipeError, make_plan, composed.recipe, few, 1, composed.origin)
        assert error.problems[0].corrections == (fix,)


@pytest.mark.parametrize(("examples", "ranks"), [(245, 1), (20, 1), (245, 4), (1100, 8)])
def test_advised_batch_has_enough_images_for_batchnorm(examples, ranks):
    few = replace(IMAGENET_FACTS, train_examples=examples)
    composed = compose("small", [] if examples >= 128 else ["bs=1024"], needs_data=False)
    try:
        advice = str(make_plan(composed.recipe, few, ranks, composed.origin).notes)
    except RecipeError as error:
        advice = error.problems[0].corrections[0]
    sizes = [int(size) for size in re.findall(r"\bbs=(\d+)", advice)]
    assert all(size >= 16 * ranks for size in sizes)
    assert bool(sizes) == (ranks < 8)
