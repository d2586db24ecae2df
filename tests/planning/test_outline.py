from pathlib import Path

from resnet_recipes.planning import outline
from tests.plans import imagenet


def text(words: str, ranks: int = 8) -> str:
    """Return the outline of a packaged recipe on ImageNet."""
    return "\n".join(outline.lines(outline.rows(imagenet(words, ranks))))


def test_an_outline_fits_in_eighty_columns_and_in_ascii():
    for name in ("mild", "medium", "hot"):
        lines = text(name).splitlines()
        assert max(map(len, lines)) <= 80
        assert all(line.isascii() for line in lines)


def test_a_plan_answers_before_it_lists():
    """The golden file is read by people: images, disk, published accuracy; then the details."""
    made = imagenet("hot")
    shown = [*outline.answers(made, [("device", "8 x GPU")]), outline.BLANK, *outline.details(made)]
    golden = (Path(__file__).parent / "golden/hot.txt").read_text()
    assert "\n".join(outline.lines(shown)) + "\n" == golden


def test_the_rest_has_rates_sizes_hooks_and_every_published_result():
    said = " ".join(text("hot").split())
    for part in (
        "PFLOPs (10^15 operations), forward and backward",
        "100 px (epochs 1-59), 104 (60-69)",
        "colout, progressive_resizing, label_smoothing, mixup",
        "sam (every 5th step)",
        "by epoch: 0 at 0, 2.05 at 8",
        "81.03 % top-1, 810 epochs, 980 min, 8x A100 80GB",
    ):
        assert part in said


def test_a_rate_that_never_changes_is_only_a_number():
    said = text("mild schedule=constant schedule.warmup=0ep")
    assert "learning rate 2.048, constant" in said
    said = text("mild checkpoint.interval=2ep schedule.warmup=1ep")
    assert "an evaluation every epoch, a checkpoint every 2 epochs" in said
    assert "up to 2.048 in 1 epoch, then cosine" in said
    said = text("mild schedule=step schedule.warmup=500ba")
    assert "learning rate up to 2.048 in 500 steps, then multistep to 0.0205" in said


def test_a_target_that_ends_the_run_is_said_with_its_length():
    said = " ".join(text("nvidia_mlperf_pt").split())
    assert "steps; ends early if an evaluation reaches 75.9 % top-1 batch" in said


def test_the_memory_of_all_loaders_is_told_and_more_threads_or_ranks_do_not_multiply_it():
    # Three batches of 2,048 images of 176 px are 571 MB; the rest is evaluation, a batch of each
    # rank's own.
    words, said = "mild batch.eval_size=32", "up to 687 MB of memory for the batches of 8 devices"
    assert "loader     up to 585 MB of memory for the batches of 1 device" in text(words, 1)
    assert said in text(words)
    assert said in text(f"{words} data.workers=64")


def test_sizes_are_reported_as_ranges_of_epochs():
    assert outline.size_ranges((88, 88, 92, 96, 96)) == "88 px (epochs 1-2), 92 (3), 96 (4-5)"
    assert outline.size_ranges((64,)) == "64 px (epoch 1)"


def test_text_from_a_recipe_cannot_act_on_the_terminal():
    assert outline.lines([("name", "a\x1b[2Jb")]) == ["  name       a\\x1b[2Jb"]
