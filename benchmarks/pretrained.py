"""Compare the predictions of timm, `eval`, `predict` and an exported ONNX file, image by image.

    python benchmarks/pretrained.py WEIGHTS timm:NAME IMAGES [--json FILE]

IMAGES has val/ with folders named as ImageNet classes; some of the classes are enough. timm takes
the tensors of WEIGHTS in the order of the file, whatever their names, and transforms the images
with its own configuration of the network. All other predictions come from commands of this program;
the ONNX file includes its preprocessing. Requires the extras timm and export.
"""

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
import onnxruntime
import timm
import torch
from PIL import Image

from resnet_recipes.data.imagenet import get_wordnet_ids

#: Class of each image, by its path.
Classes = dict[str, str]

BATCH = 32


def predict_with_timm(weights: str, name: str, paths: Sequence[Path]) -> Classes:
    """Return the timm predictions for images with timm transforms."""
    model = timm.create_model(name.removeprefix("timm:")).eval()
    tensors = torch.load(weights, weights_only=True).values()
    model.load_state_dict(dict(zip(model.state_dict(), tensors, strict=True)))
    transform = timm.data.create_transform(**timm.data.resolve_data_config({}, model=model))
    predictions = {}
    for start in range(0, len(paths), BATCH):
        batch = paths[start : start + BATCH]
        images = torch.stack([transform(Image.open(path).convert("RGB")) for path in batch])
        with torch.inference_mode():
            labels = model(images).argmax(1).tolist()
        predictions |= {
            str(path): get_wordnet_ids()[label] for path, label in zip(batch, labels, strict=True)
        }
    return predictions


def predict_with_command(
    command: str, arguments: Sequence[str], file: Path, columns: tuple[str, str]
) -> Classes:
    """Return the predictions that a command writes to a CSV file, from two columns."""
    run(command, *arguments)
    with file.open(newline="", encoding="utf-8") as rows:
        return {
            str(Path(row[columns[0]]).absolute()): row[columns[1]] for row in csv.DictReader(rows)
        }


def run(*arguments: str) -> None:
    """Run a command of this program."""
    start = "from resnet_recipes.cli import main; raise SystemExit(main())"
    subprocess.run([sys.executable, "-c", start, *arguments], stdout=subprocess.DEVNULL, check=True)


def predict_with_onnx(file: Path, paths: Sequence[Path]) -> Classes:
    """Return the predictions of an ONNX file with preprocessing for unprocessed images."""
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    classes = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
    predictions = {}
    for batch, pixels in _read_batches(paths):
        probabilities = session.run(["probabilities"], {"images": pixels})[0]
        best = probabilities.argmax(1).tolist()
        predictions |= {str(path): classes[label] for path, label in zip(batch, best, strict=True)}
    return predictions


def _read_batches(paths: Sequence[Path]) -> Iterator[tuple[list[Path], np.ndarray]]:
    """Yield images of one size, uint8 [N, height, width, 3], with their paths."""
    read = ((path, np.asarray(Image.open(path).convert("RGB"))) for path in paths)
    for _, group in groupby(enumerate(read), lambda item: (item[0] // BATCH, item[1][1].shape)):
        batch = [item for _, item in group]
        yield [path for path, _ in batch], np.stack([pixels for _, pixels in batch])


def main() -> None:
    """Print each source's accuracy, and the number of images where it differs from timm."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("weights", "name", "images"):
        parser.add_argument(name)
    parser.add_argument("--json", type=Path, help="also write the rows here")
    arguments = parser.parse_args()
    images = Path(arguments.images).absolute()
    paths = sorted(path for path in (images / "val").glob("*/*") if path.is_file())
    network = [arguments.weights, f"model.name={arguments.name}"]
    with tempfile.TemporaryDirectory() as folder:
        files = {source: Path(folder, f"{source}.csv") for source in ("eval", "predict")}
        predictions_by_source = {
            "timm": predict_with_timm(arguments.weights, arguments.name, paths)
        }
        options = [*network, f"data={images}", "--images", str(files["eval"])]
        predictions_by_source["eval"] = predict_with_command(
            "eval", options, files["eval"], ("path", "prediction")
        )
        options = [*network, str(images / "val"), "--top", "1", "--csv", str(files["predict"])]
        predictions_by_source["predict"] = predict_with_command(
            "predict", options, files["predict"], ("file", "class_1")
        )
        out = Path(folder, "exported")
        options = [*network, f"data={images}", "--to", "onnx", "--with-preprocessing", "--out"]
        run("export", *options, str(out))
        predictions_by_source["onnx"] = predict_with_onnx(out / "model.onnx", paths)
    rows = []
    for source, predictions in predictions_by_source.items():
        correct = sum(predictions[str(path)] == path.parent.name for path in paths)
        others = sum(
            predictions[str(path)] != predictions_by_source["timm"][str(path)] for path in paths
        )
        rows.append(
            {"source": source, "images": len(paths), "correct": correct, "differ_from_timm": others}
        )
        accuracy = f"{100 * correct / len(paths):6.2f}%  {correct:,} of {len(paths):,}"
        print(f"{source:<8} {accuracy} correct, {others} other predictions than timm")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
