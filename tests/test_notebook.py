"""The notebook of the documentation.

Its cells run in order, and progress shows although its streams are no files.
"""

import io
import json
import sys
from pathlib import Path

import pytest
import torchvision

from tests.jobs.nursery import shallow_resnet18

NOTEBOOK = json.loads(
    (Path(__file__).parents[1] / "docs" / "notebook.ipynb").read_text(encoding="utf-8")
)
CELLS = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


def test_the_notebook_has_the_output_of_its_cells_and_no_path_of_the_machine_that_ran_them():
    cells = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    said = "".join(text for cell in cells for out in cell["outputs"] for text in out["text"])
    for word in ("44 steps, 12 classes", "eval step=44/44", "accuracy    top-1", "it is "):
        assert word in said
    assert "/tmp" not in said
    assert (NOTEBOOK["nbformat"], NOTEBOOK["nbformat_minor"]) == (4, 4)


@pytest.mark.slow
def test_its_cells_run_in_order_and_show_progress(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torchvision.models, "resnet18", shallow_resnet18)
    # without a descriptor, as in Jupyter
    monkeypatch.setattr(sys, "stderr", shown := io.StringIO())
    names: dict[str, object] = {}
    for cell in CELLS:
        exec(cell.replace("train_images=60, val_images=10", "train_images=6, val_images=2"), names)
    assert len(names["losses"]) >= 1
    assert "loss=" in shown.getvalue()
    assert "top1=" in shown.getvalue()
    assert names["network"].classes[0] == "halved_cross"
