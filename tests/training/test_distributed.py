"""Several gloo ranks on the CPU match one process, and are bit-identical to each other."""

import json
import socket
from dataclasses import replace
from unittest.mock import Mock

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import nn

from resnet_recipes import data, ops
from resnet_recipes.jobs.ranks.rank import RankProcess
from resnet_recipes.training.build import agree_on_operations
from resnet_recipes.training.distributed import (
    Rank,
    Vote,
    average_statistics,
    broadcast_statistics,
    join_group,
    leave_group,
    open_store,
    read_rank,
)
from resnet_recipes.training.evaluate import evaluate
from resnet_recipes.training.state import compute_parameter_sum
from tests.shared.plans import make_recipe
from tests.shared.run_folders import create_unstarted_run

pytestmark = pytest.mark.slow


def test_three_ranks_match_single_process(launcher, make_run, tmp_path):
    """Micro-batches of four share BatchNorm statistics, for any number of ranks.

    Only the order of float additions differs.
    """
    arguments = (
        "max_duration=6ba data.train_size=48 data.eval_resize=48 data.eval_size=48 "
        "optimizer.lr=0.01 batch.global_size=24 batch.bn_size=4 batch.eval_size=16 "
        "methods.bce_loss={} methods.label_smoothing={} methods.ema.half_life=2ba "
        "methods.ema.update_interval=1ba"
    )

    def train_and_read(ranks: int, arguments: str, eval_examples: int = 50) -> tuple[dict, dict]:
        parsed = make_recipe(arguments)
        facts = replace(data.survey_images(parsed.data), eval_examples=eval_examples)
        folder = create_unstarted_run(tmp_path / f"{ranks}-{eval_examples}", parsed, facts)
        launcher.train(folder, ranks)
        summary = json.loads((folder / "summary.json").read_text())
        return load_file(folder / "weights.safetensors"), summary

    alone, _ = train_and_read(1, arguments)
    weights, summary = train_and_read(3, arguments)
    for name in alone:
        if not name.endswith(("running_mean", "running_var", "num_batches_tracked")):
            torch.testing.assert_close(weights[name], alone[name], rtol=1e-4, atol=1e-5)
    run = make_run(arguments)
    run.model.load_state_dict(weights)
    results = evaluate(run.model, run.eval_data, run.precision, run.plan.num_classes)
    assert (results.top1, results.top5) == (
        summary["ema_top1_percent"],
        summary["ema_top5_percent"],
    )
    assert results.loss == pytest.approx(summary["ema_loss"], rel=1e-5)
    assert summary["eval_examples"] == 50  # not divisible by three ranks
    _, summary = train_and_read(
        3, f"{arguments} max_duration=1ba schedule.warmup=0ba", eval_examples=2
    )
    assert summary["eval_examples"] == 2  # one rank has no images


def average_on_ranks(process: RankProcess) -> list[object]:
    """Average statistics that differ between ranks, and those of a network without statistics."""
    rank = read_rank("cpu", process.launch.store_path)
    join_group(rank)
    model = nn.Sequential(nn.BatchNorm1d(2), nn.BatchNorm1d(1))
    for number, buffer in enumerate(model.buffers()):
        buffer.fill_(10 * number + rank.rank)
    average_statistics(model)
    average_statistics(nn.LayerNorm(2))
    leave_group()
    return [buffer.tolist() for buffer in model.buffers()]


def test_broadcast_statistics_reaches_every_buffer(monkeypatch):
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))

    def receive(tensor: torch.Tensor, src: int) -> None:
        assert src == 0
        tensor.fill_(7)

    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "broadcast", receive)
    broadcast_statistics(model)
    assert all((buffer == 7).all() for buffer in model.buffers())
    assert not any((parameter == 7).any() for parameter in model.parameters())


def test_vote_is_counted_in_next_step(monkeypatch):
    others = iter([0, 0, 0, 0, 1])  # votes of another rank

    def gather(ballot: torch.Tensor, **_: object) -> Mock:
        return Mock(wait=lambda: ballot.clamp_(min=next(others)))

    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "new_group", lambda **_: Mock())
    monkeypatch.setattr(dist, "all_reduce", gather)
    vote = Vote()
    own_votes = [True, False, False, True, False, False]
    assert [vote.cast(stop) for stop in own_votes] == [False, True, False, False, True, True]


def test_average_statistics_is_mean_and_keeps_counts(launcher, tmp_path):
    results = launcher.call(tmp_path, 3, average_on_ranks)
    assert results == [[[1, 1], [11, 11], 20 + rank, [31], [41], 50 + rank] for rank in range(3)]


@pytest.mark.parametrize(("is_new", "meets"), [("1", True), ("0", False)])
def test_store_separates_attempts_unless_each_has_its_own(is_new, meets, monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", is_new)
    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setenv("MASTER_PORT", str(free.getsockname()[1]))
    stores = []
    for rank in (0, 1):  # the node of rank 1 was restarted once
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(rank))
        stores.append(open_store.__wrapped__(rank, 2, ""))
    stores[0].set("key", "value")
    stores[0].get("key")  # waits until the server has it
    assert stores[1].check(["key"]) == meets


def test_parameter_sum_changes_with_a_bit_or_order():
    torch.manual_seed(0)
    model = nn.Linear(64, 64)
    before = compute_parameter_sum(model)
    with torch.no_grad():
        model.weight.view(torch.int32)[17, 3] ^= 1
    assert not torch.equal(compute_parameter_sum(model), before)
    pair = nn.Sequential(nn.Linear(2, 1, bias=False), nn.Linear(2, 1, bias=False))
    swapped = nn.Sequential(*reversed(pair))
    assert not torch.equal(compute_parameter_sum(swapped), compute_parameter_sum(pair))


def agree_without_blur(process: RankProcess) -> tuple[list[str], tuple[str, ...]]:
    """Agree on operations when rank 1 lacks one operation and rank 2 another."""
    operations = ops.Operations(**{name: module.fused for name, module in ops.MODULES.items()})
    for rank, name in ((1, "blur"), (2, "batch_norm")):
        operations = operations.without(name, "why") if process.rank == rank else operations
    rank = read_rank("cpu", process.launch.store_path)
    join_group(rank)
    agreed = agree_on_operations(operations, rank)
    leave_group()
    return agreed.list_fused(), agreed.notes


def test_operations_missing_on_one_rank_are_dropped(launcher, tmp_path):
    (first, notes), *others = launcher.call(tmp_path, 3, agree_without_blur)
    assert [first, *(fused for fused, _ in others)] == [["max_pool"]] * 3
    assert notes == [
        f"the {name} kernel cannot be used on the GPU of rank {rank}; all ranks use plain torch "
        f"instead: see logs/rank{rank}.log"
        for name, rank in (("blur", 1), ("batch_norm", 2))
    ]
    assert "why" in others[0][1]


@pytest.mark.parametrize(("ranks", "text"), [(1, "1 core"), (3, "3 cores, 3 processes")])
def test_rank_devices_name_cores_and_processes(monkeypatch, ranks, text):
    monkeypatch.setattr("resnet_recipes.base.cores.count_cores", lambda: 8)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert Rank(0, ranks, torch.device("cpu")).devices == f"CPU, {text}"
