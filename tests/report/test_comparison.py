"""Comparison of runs."""

from dataclasses import replace
from statistics import stdev

import pytest

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.report.comparison import (
    JOB_SETTINGS,
    SeedGroup,
    find_differences,
    group_seeds,
    make_labels,
    read_all,
    read_machine,
    read_settings,
)
from tests.shared.run_folders import create_run_folder


def test_seeds_of_one_recipe_form_one_group(tmp_path):
    tops = (70.0, 70.6, 71.0)
    same = []
    for i, top1 in enumerate(tops):
        varying = {"checkpoint": {"keep": 2 + i}, "log": {"interval": f"{i}ba"}, "about": f"{i}"}
        varying |= {"launch": {"max_wall": f"{i}h", "price": i}, "data": {"cache": f"{i}"}}
        same.append(create_run_folder(tmp_path, f"s{i}", top1=top1, seed=i, config=varying))
    other = create_run_folder(tmp_path, "other", config={"optimizer": {"lr": 1.0}})
    first, second = group_seeds(read_all([*same, other]))
    assert first.mean("top1_percent") == pytest.approx(sum(tops) / 3)
    assert first.noise == pytest.approx(stdev(tops))
    assert (second.noise, second.mean("top1_percent")) == (None, 70.0)


@pytest.fixture
def group_configs(tmp_path):
    """Return a function that groups one run of each config."""

    def group(*configs: dict) -> list[SeedGroup]:
        runs = (create_run_folder(tmp_path, f"{i}", config=one) for i, one in enumerate(configs))
        return group_seeds(read_all(runs))

    return group


def test_folds_of_one_size_form_one_group(group_configs):
    folds = ("1/2", "2/2", "1/3", "2/3", "3/3")
    groups = group_configs(*({"data": {"fold": fold}} for fold in folds), {})
    assert [len(group.runs) for group in groups] == [2, 3, 1]
    assert make_labels(groups)[:2] == ["data.fold of 2", "data.fold of 3"]


def test_differences_omit_the_name_and_place_of_runs(tmp_path):
    left = read_settings(create_run_folder(tmp_path, "a"))
    config = {"run": {"root": "x"}, "methods": {"ema": {}, "mixup": {"alpha": 0.2}}}
    right = read_settings(create_run_folder(tmp_path, "b", config=config))
    assert find_differences([left, right]) == {"methods.mixup.alpha": ["-", "0.2"]}


def test_differences_omit_given_settings_only(tmp_path):
    left, right = (
        read_settings(create_run_folder(tmp_path, f"{price}", config={"launch": {"price": price}}))
        for price in (1.2, 3.0)
    )
    assert find_differences([left, right]) == {"launch.price": ["1.2", "3.0"]}
    assert find_differences([left, right], JOB_SETTINGS) == {}


def test_labels_have_the_short_names_that_users_type(group_configs):
    groups = group_configs(*({"data": {"memory_pixels": size}} for size in (0, 320)))
    assert make_labels(groups) == ["cache 0", "cache 320"]


def test_labels_shorten_paths_to_their_distinct_ends(group_configs):
    roots = ("/data/old/pets", "/data/new/pets", "/other/cats", "cats")
    labels = make_labels(group_configs(*({"data": {"root": root}} for root in roots)))
    assert labels == ["data old/pets", "data new/pets", "data other/cats", "data cats"]


def test_read_settings_omits_empty_sections(tmp_path):
    assert "methods" not in read_settings(create_run_folder(tmp_path, "a", config={"methods": {}}))


def test_read_machine_ignores_the_time_of_a_run(tmp_path):
    assert (
        find_differences([read_machine(create_run_folder(tmp_path, name)) for name in "ab"]) == {}
    )


def test_read_all_reports_every_missing_folder(tmp_path):
    create_run_folder(tmp_path, "a")
    with pytest.raises(NotReadyError) as error:
        read_all([tmp_path / "a", tmp_path / "b", tmp_path / "c"])
    assert len(error.value.problems) == 2


def test_labels_name_settings_as_users_type_them(group_configs):
    configs = (
        {
            "data": {"eval_resize": size, "eval_size": size},
            "batch": {"eval_size": 8},
            "methods": {"mixup": {"alpha": size}},
        }
        for size in (32, 64)
    )
    assert make_labels(group_configs(*configs)) == [
        f"data.eval_resize {size}, data.eval_size {size}, mixup.alpha {size}" for size in (32, 64)
    ]


def test_runs_evaluated_at_other_intervals_are_one_group(group_configs):
    (group,) = group_configs(*({"evaluation": {"interval": one}} for one in ("0.1dur", "1ep")))
    assert len(group.runs) == 2


def test_runs_on_the_same_devices_are_one_group(tmp_path):
    def group(devices: str) -> list[str]:
        runs = [replace(run, devices=device) for run, device in zip(records, devices, strict=True)]
        return make_labels(group_seeds(runs))

    configs = [{"launch": {"gpus": gpus}} for gpus in ("auto", 1)]
    records = read_all(
        create_run_folder(tmp_path, f"{i}", config=config) for i, config in enumerate(configs)
    )
    assert group("aa") == ["mild"]
    assert group("ab") == ["gpus auto", "gpus 1"]


def test_labels_name_four_settings_and_count_the_rest(group_configs):
    many = {"optimizer": dict.fromkeys("abcdef", 1.0), "methods": {}}
    first, second = make_labels(group_configs({"optimizer": {}, "methods": {"ema": {}}}, many))
    assert first == "ema on"  # missing settings are not named, except for methods
    assert second == "no ema, optimizer.a 1.0, optimizer.b 1.0, optimizer.c 1.0, 3 more"


def test_labels_start_with_settings_of_short_names(group_configs):
    configs = (
        {"data": dict.fromkeys("abcd", lr), "optimizer": {"a": lr, "lr": lr}} for lr in (1, 2)
    )
    labels = make_labels(group_configs(*configs))
    assert labels[0] == "lr 1, data.a 1, data.b 1, data.c 1, 2 more"
    assert [label.partition(",")[0] for label in labels] == ["lr 1", "lr 2"]


def test_labels_of_different_groups_differ(group_configs):
    def make_config(size: int, smoothing: float, eps: int, **settings: int) -> dict:
        return {"data": dict.fromkeys("abcd", size), "optimizer": {"x": smoothing, "eps": eps}} | (
            {"schedule": settings} if settings else {}
        )

    groups = group_configs(
        make_config(1, 0.5, 7),
        make_config(2, 0.1, 7),
        make_config(2, 0.2, 7),
        make_config(2, 0.2, 8),
        make_config(2, 0.2, 8, z=3),
    )
    same = "data.a 2, data.b 2, data.c 2, data.d 2"
    assert make_labels(groups) == [
        "data.a 1, data.b 1, data.c 1, data.d 1, 2 more",
        f"{same}, optimizer.x 0.1, 1 more",
        f"{same}, optimizer.x 0.2, optimizer.eps 7",
        f"{same}, optimizer.eps 8, 1 more",
        f"{same}, optimizer.eps 8, schedule.z 3, 1 more",
    ]


def test_labels_of_different_durations_are_equal(group_configs):
    configs = (
        {"data": dict.fromkeys("abcdef", size), "max_duration": duration}
        for size, duration in ((1, "1ep"), (2, "1ep"), (2, "2ep"))
    )
    labels = make_labels(group_configs(*configs))
    assert labels[1:] == ["data.a 2, data.b 2, data.c 2, data.d 2, 2 more"] * 2
