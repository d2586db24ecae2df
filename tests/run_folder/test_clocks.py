"""The clocks against sums done by hand."""

from resnet_recipes.run_folder.summary import (
    epoch_seconds,
    evaluation_seconds,
    mlperf_readings,
    mlperf_seconds,
    papers_seconds,
)


def records(*written: tuple[str, float, dict]) -> list[dict]:
    """Return records of a kind, with their wall seconds and what else they hold."""
    return [{"kind": kind, "wall_seconds": wall, **values} for kind, wall, values in written]


def test_the_papers_clock_times_the_first_epoch_as_the_second():
    epochs = records(*(("epoch", 0.0, {"seconds": seconds}) for seconds in (30.0, 20.0, 25.0)))
    assert papers_seconds(epochs, 77.0) == 67.0
    assert papers_seconds(epochs[:1], 30.0) is None


def test_mlperfs_clock_runs_from_first_step_to_last_evaluation_with_evaluations_and_checkpoints():
    one = records(
        ("begin", 7.0, {"startup_seconds": 7.0}),
        ("evaluation", 50.0, {"raw_seconds": 0.0}),
        ("saved", 55.0, {}),
        ("evaluation", 90.0, {"raw_seconds": 4.0}),
        ("saved", 95.0, {}),
    )
    assert mlperf_seconds(one) == 90.0 - 4.0 - 7.0
    assert mlperf_seconds(one[:1]) is None


def test_mlperfs_clock_counts_repeated_steps_but_no_start_up():
    resumed = records(
        ("begin", 7.0, {"startup_seconds": 7.0}),
        ("saved", 30.0, {}),
        # ten seconds after the checkpoint were lost
        ("begin", 45.0, {"startup_seconds": 5.0}),
        ("evaluation", 60.0, {"raw_seconds": 0.0}),
    )
    assert [reading for _, reading in mlperf_readings(resumed)] == [0.0, 23.0, 33.0, 48.0]


def test_epochs_that_follow_each_other_in_the_records_are_timed_whatever_lies_between():
    """Of four steps each: the first, the second, and the last of ten, with a log in the middle."""
    ends = ((4, 9.0), (8, 15.0), (38, 18.0), (40, 22.0))
    one = records(*(("step", 0.0, {"step": end, "training_seconds": at}) for end, at in ends))
    assert epoch_seconds(one, 4) == {0: 9.0, 1: 6.0, 9: 7.0}
    two = records(("evaluation", 0.0, {"seconds": 3.0}), ("saved", 0.0, {"seconds": 1.0}))
    assert evaluation_seconds(two) == [3.0]
