"""Run the cells of docs/notebook.ipynb in an empty folder, and store their output in it.

    python tools/notebook.py [--check]

With --check nothing is stored: the stored output must name the same figures as the new output.
"""

import io
import json
import os
import re
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

NOTEBOOK = Path(__file__).parents[1] / "docs" / "notebook.ipynb"


def list_figures(notebook: dict) -> list[set[str]]:
    """Return the names of the figures that each cell prints: loss=, top1=."""
    outputs = [str(cell.get("outputs")) for cell in notebook["cells"]]
    return [set(re.findall(r"(?<![\w.])\w+=", output)) for output in outputs]


def main() -> None:
    """Execute the notebook, which takes a minute, then store or compare its output."""
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    stored = list_figures(notebook)
    names: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        for count, cell in enumerate(cells, start=1):
            streams = {"stderr": io.StringIO(), "stdout": io.StringIO()}
            with redirect_stdout(streams["stdout"]), redirect_stderr(streams["stderr"]):
                exec("".join(cell["source"]), names)
            cell["execution_count"] = count
            cell["outputs"] = [
                {"output_type": "stream", "name": name, "text": text.splitlines(keepends=True)}
                for name, stream in streams.items()
                if (text := stream.getvalue().replace(f"{folder}/", ""))
            ]
    if "--check" in sys.argv:
        if stored != list_figures(notebook) or not {"loss=", "top1="} <= set().union(*stored):
            sys.exit(f"{NOTEBOOK.name} does not show what its cells print")
        return
    NOTEBOOK.write_text(json.dumps(notebook, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
