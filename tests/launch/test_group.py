"""The processes that a recipe asks for, and the commands that start them."""

from pathlib import Path

import pytest
import torch

from resnet_recipes.config import LaunchConfig
from resnet_recipes.errors import NotReadyError
from resnet_recipes.launch.group import Group, command, environment, group_of

RUN = Path("runs/a")


@pytest.fixture
def four_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torch see four GPUs."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)


@pytest.mark.usefixtures("four_gpus")
@pytest.mark.parametrize(("config", "ranks"), [
    (LaunchConfig(), 4), (LaunchConfig(gpus=2), 2), (LaunchConfig(device="cpu"), 1), (LaunchConfig(device="cpu", gpus=3), 3),
    (LaunchConfig(nodes=2, rdzv="a:29400"), 8), (LaunchConfig(nodes="1:3", rdzv="a:29400", max_restarts=1), 12),
])
def test_ranks_are_the_gpus_or_what_was_asked_for(config: LaunchConfig, ranks: int) -> None:
    assert group_of(config).ranks == ranks


@pytest.mark.usefixtures("four_gpus")
def test_more_gpus_than_there_are_is_refused() -> None:
    with pytest.raises(NotReadyError, match=r"launch\.gpus=8: this machine has 4"):
        group_of(LaunchConfig(gpus=8))


def test_a_gpu_where_there_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(NotReadyError, match=r"launch\.device=cuda"):
        group_of(LaunchConfig(device="cuda"))


def test_one_rank_needs_no_torchrun_unless_it_may_be_started_again() -> None:
    assert command(RUN, Group())[1:] == ["-m", "resnet_recipes.process.rank", "runs/a"]
    assert "--max-restarts=2" in command(RUN, Group(max_restarts=2))


def test_ranks_of_one_machine_meet_on_it_and_those_of_several_where_they_were_told() -> None:
    one, two = command(RUN, Group(8)), command(RUN, Group(8, 2, "node0:29400"))
    assert {"--standalone", "--nproc-per-node=8", "--nnodes=1:1"} <= set(one)
    assert {"--rdzv-endpoint=node0:29400", "--rdzv-backend=c10d", "--rdzv-id=a", "--nnodes=2:2"} <= set(two)
    assert "--nnodes=1:2" in command(RUN, Group(8, 2, "node0:29400", 3, fewest_nodes=1))
    assert one[-3:] == two[-3:] == ["-m", "resnet_recipes.process.rank", "runs/a"]


def test_the_users_environment_is_kept_and_modules_are_not_taken_from_where_he_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    given = environment(Group(2), 1.0)
    assert (given["OMP_NUM_THREADS"], given["PYTHONSAFEPATH"]) == ("7", "1")
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert int(environment(Group(2), 1.0)["OMP_NUM_THREADS"]) >= 1
