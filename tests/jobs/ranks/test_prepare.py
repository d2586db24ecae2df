"""Ranks fetch images and agree before they train; if one cannot, all report it.

Images on a web server give the same facts as images in a folder.
"""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

from resnet_recipes import data
from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.data.base import DataConfig
from resnet_recipes.data.convert import convert
from resnet_recipes.data.convert.encode import ConvertOptions
from resnet_recipes.jobs.ranks.prepare import Rendezvous
from resnet_recipes.recipe.frozen_recipe import read
from tests.data.remote.web_server import serve_folder
from tests.shared.images import create_random_images
from tests.shared.plans import make_recipe
from tests.shared.run_folders import create_unstarted_run


@pytest.mark.slow
def test_ranks_fetch_once_and_train_as_from_folder(tmp_path, launcher):
    betons = tmp_path / "betons"
    betons.mkdir()
    convert(
        create_random_images(tmp_path / "img"), betons, ConvertOptions(workers=1), lambda *_: None
    )

    facts = data.survey_images(DataConfig("auto", str(betons)))

    arguments = (
        "data.backend=auto data.workers=0 data.train_size=32 data.eval_resize=32 data.eval_size=32 "
        "max_duration=2ba schedule.warmup=0ba batch.global_size=4 batch.bn_size=2 "
        f"data.cache={tmp_path}/cache"
    )

    def train(name: str, root: object, code: int = 0) -> Path:
        small = make_recipe(f"{arguments} data.root={root}")
        return launcher.train(create_unstarted_run(tmp_path / name, small, facts), 2, code)

    with serve_folder(betons) as site:
        local = train("local", betons)
        far = train("far", site.address)
        ranges = [word for word in site.asked if word.startswith("GET")]
        assert len(ranges) == len({*ranges})
        assert read(far / "config.yaml").data.root == site.address
        weights, others = (load_file(run / "weights.safetensors") for run in (local, far))
        assert all(torch.equal(weights[name], others[name]) for name in weights)
        shutil.rmtree(tmp_path / "cache")
        site.status = 403
        rejected_run = train("rejected", site.address, code=3)
    assert "access denied" in (rejected_run / "logs/rank0.log").read_text()


def collect_errors(facts: list[dict]) -> list[str]:
    store = dist.HashStore()

    def rank(number: int) -> str:
        try:
            Rendezvous(store, number, len(facts)).confirm(facts[number])
        except NotReadyError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(len(facts)) as pool:
        return list(pool.map(rank, range(len(facts))))


def test_rendezvous_accepts_ranks_with_equal_facts():
    assert collect_errors([{"lr": 1.0, "torch": "2.14"}] * 3) == ["", "", ""]


def test_rendezvous_names_differing_rank_to_all():
    errors = collect_errors(
        [{"lr": 1.0, "torch": "2.14"}, {"lr": 1.0, "torch": "2.14"}, {"lr": 1.0, "torch": "2.15"}]
    )
    assert len(set(errors)) == 1
    assert errors[0].startswith("torch is 2.14 on rank 0, but 2.15 on rank 2 (")


def test_rendezvous_names_fact_of_a_single_rank():
    (error, _) = collect_errors([{}, {"seed": 9}])
    assert "seed is not given on rank 0, but 9 on rank 1" in error


def test_broadcast_sends_text_of_rank_0():
    store = dist.HashStore()

    def rank(number: int) -> str:
        return Rendezvous(store, number, 3).broadcast(f"runs/{number}")

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(rank, range(3))) == ["runs/0"] * 3


def test_await_all_waits_for_the_slowest_rank():
    store = dist.HashStore()
    first = Rendezvous(store, 0, 2).await_all()
    next(first)
    next(first)
    assert list(Rendezvous(store, 1, 2).await_all()) == []
    assert list(first) == []
