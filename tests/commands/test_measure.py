"""`resnet-recipes measure` as a user sees it; the ranks' part is in tests/process/test_ranks.py."""

import json
from pathlib import Path

import pytest
import yaml

from resnet_recipes.base.errors import RecipeError
from resnet_recipes.commands import verbs
from resnet_recipes.launch import start
from resnet_recipes.process.ending import Ending

WORDS = [
    "recipe=mild",
    "data.backend=synthetic",
    "model.name=resnet18",
    "bs=16",
    "max_duration=60ep",
    "ssr=1",
    "launch.device=cpu",
]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """What the ranks were asked for.

    Each epoch takes a second and its number, and its size a hundredth.
    """
    found: list[dict] = []

    def train(folder: Path, *_: object) -> Ending:
        epochs = json.loads((folder / "sample.json").read_text())["epochs"]
        found.append(
            {"epochs": epochs, "recipe": yaml.safe_load((folder / "config.yaml").read_text())}
        )
        (folder / "seconds.json").write_text(
            json.dumps({epoch: 10.0 if epoch else 30.0 for epoch in epochs})
        )
        return Ending(0)

    monkeypatch.setattr(start, "start", train)
    return found


def test_the_first_epochs_of_the_whole_schedule_are_trained_and_the_rest_is_extrapolated(
    asked, capsys
):
    assert verbs.run(["measure", *WORDS, "~methods.progressive_resizing", "epochs=4"]) == 0
    assert asked[0]["epochs"] == [0, 1, 2, 3]
    assert asked[0]["recipe"]["max_duration"] == "60ep"
    out = capsys.readouterr().out
    assert "mild: 10:00 on the papers' clock, extrapolated from 4 epochs" in out
    assert "timed as the second" in out
    assert max(map(len, out.splitlines())) <= 80


def test_growing_images_are_sampled_at_several_sizes(asked, capsys):
    assert verbs.run(["measure", *WORDS, "epochs=4", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["extrapolated"] is True
    assert [row["pixels"] for row in values["measured"]] == [88, 88, 92, 176]
    assert values["papers_minutes"] == pytest.approx(10.0)


def test_nothing_is_kept(asked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    verbs.run(["measure", *WORDS, "epochs=2"])
    assert list(tmp_path.iterdir()) == []
    assert not Path(asked[0]["recipe"]["run"]["root"]).exists()


@pytest.mark.parametrize("word", ["epochs=1", "epochs=many", "epochs=1.5"])
def test_a_number_of_epochs_below_two_is_refused(word):
    with pytest.raises(RecipeError, match="must be the number of epochs to measure, at least 2"):
        verbs.run(["measure", *WORDS, word])
