"""Write a trained network for other programs, and read each file back with its program."""

import json
import logging
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import torch
import torchvision
from torch import Tensor, nn

from resnet_recipes import backbones
from resnet_recipes.base.errors import TrainingError
from resnet_recipes.base.text import Progress, silent
from resnet_recipes.inference.inputs import example, is_preprocessed, shapes, takes_any_size
from resnet_recipes.network.about import About
from resnet_recipes.network.load import Network, load
from resnet_recipes.network.weights import KEY, write_weights

#: Takes normalised float32 images [N, 3, H, W] and returns logits [N, K].
RunProgram = Callable[[Tensor], Tensor]


class Target(NamedTuple):
    """An export format: how to write a network into a folder, and how its program reads it back."""

    file: str
    write: Callable[[Network, Path], None]
    read: Callable[[Path, About], RunProgram]
    # whether it can hold any network; otherwise only weights for the reader's own architecture
    takes_any: bool
    use: str  # Python code that reads it
    use_preprocessed: str = ""  # the same for a network with its preprocessing; "": cannot hold it
    needs: tuple[str, ...] = ("",)  # an extra, and its packages


def _write_weights(network: Network, path: Path) -> None:
    write_weights(network.model, path, network.about)


def _read_torchvision(path: Path, about: About) -> RunProgram:
    name = about.architecture.removeprefix("torchvision:")
    make = getattr(torchvision.models, name)
    model = make(num_classes=about.num_classes, **about.arguments).eval()
    model.load_state_dict(torch.load(path, weights_only=True))
    return model


def _write_timm(network: Network, path: Path) -> None:
    about, known = network.about, backbones.facts(network.model)
    _write_weights(network, path)
    facts = {
        "num_classes": about.num_classes,
        "input_size": [3, about.eval_size, about.eval_size],
        "pool_size": None,
        "crop_pct": crop_share(about.eval_size, about.eval_resize),
        "crop_mode": {"crop": "center", "pad": "border"}.get(about.fit, about.fit),
        "interpolation": about.eval_interpolation,
        "mean": [value / 255 for value in about.mean],
        "std": [value / 255 for value in about.std],
        "first_conv": known.get("first_conv", "conv1"),
        "classifier": known.get("classifier", "fc"),
        "label_names": list(about.classes) or None,
    }
    config = {
        "architecture": about.architecture.removeprefix("timm:"),
        "num_classes": about.num_classes,
        "model_args": dict(about.arguments),
        "pretrained_cfg": facts,
    }
    (path.parent / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def crop_share(size: int, resize: int) -> float:
    """Return timm's `crop_pct`: the share that gives `resize` as floor(size / share)."""
    share = size / resize
    while math.floor(size / share) < resize:  # 192 / (192 / 225) is a little less than 225
        share = math.nextafter(share, 0)
    return share


def _read_timm(path: Path, _: About) -> RunProgram:
    import timm

    return timm.create_model(f"local-dir:{path.parent}", pretrained=True).eval()


def _write_onnx(network: Network, path: Path) -> None:
    import onnx

    with _any_size_by_private_setting():
        torch.onnx.export(
            network.model,
            (example(network),),
            path,
            dynamo=True,
            dynamic_shapes=shapes(network),
            input_names=["images"],
            output_names=["probabilities" if is_preprocessed(network) else "logits"],
            external_data=False,
            verbose=False,
        )
    model = onnx.load(path)
    facts = {KEY: network.about.to_json(), "classes": json.dumps(network.classes)}
    onnx.helper.set_model_props(model, facts)
    onnx.save(model, path)


def _read_onnx(path: Path, _: About) -> RunProgram:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda images: torch.from_numpy(session.run(None, {"images": images.numpy()})[0])


def _write_exported_program(network: Network, path: Path) -> None:
    with _any_size_by_private_setting():
        sizes = shapes(network)
        program = torch.export.export(network.model, (example(network),), dynamic_shapes=sizes)
    saved = BytesIO()
    torch.export.save(program, saved, extra_files={f"{KEY}.json": network.about.to_json()})
    path.write_bytes(saved.getbuffer())  # on a full disk, torch itself would abort


@contextmanager
def _any_size_by_private_setting() -> Iterator[None]:
    """Allow small images, whose last feature map is one pixel.

    torch.export would require more than one.
    """
    from torch.fx.experimental import _config as config

    with config.patch(backed_size_oblivious=True):
        yield


_INPUT = "images: float32 [N, 3, {sides}; (pixel - mean) / std by channel, of 0..255"

TARGETS = {
    "torchvision": Target(
        "model.pt",
        _write_weights,
        _read_torchvision,
        False,
        """\
import torch, torchvision
model = torchvision.models.{architecture}(num_classes={num_classes}).eval()
model.load_state_dict(torch.load("model.pt", weights_only=True))""",
    ),
    "timm": Target(
        "model.safetensors",
        _write_timm,
        _read_timm,
        False,
        """\
import timm
model = timm.create_model("local-dir:FOLDER", pretrained=True).eval()        # this folder""",
        needs=("timm", "timm"),
    ),
    "safetensors": Target(
        "model.safetensors",
        _write_weights,
        lambda path, _: load(path).model,
        True,
        """\
import resnet_recipes as rr
network = rr.load("model.safetensors")""",
    ),
    "onnx": Target(
        "model.onnx",
        _write_onnx,
        _read_onnx,
        True,
        f"""\
import onnxruntime
session = onnxruntime.InferenceSession("model.onnx")
logits, = session.run(["logits"], {{{{"images": images}}}})        # {_INPUT}""",
        """\
import json, numpy, onnxruntime
from PIL import Image
session = onnxruntime.InferenceSession("model.onnx")
classes = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
image = Image.open("cat.jpg")
if image.mode[0] == "I":        # 16-bit grey: the upper eight bits
    image = Image.fromarray((numpy.asarray(image) >> 8).astype("uint8"))
pixels = numpy.asarray(image.convert("RGB"))        # uint8 [height, width, 3]
shares = session.run(["probabilities"], {{"images": pixels[None]}})[0][0]
print(classes[shares.argmax()], shares.max())""",
        needs=("export", "onnx", "onnxruntime", "onnxscript"),
    ),
    "exported_program": Target(
        "model.pt2",
        _write_exported_program,
        lambda path, _: torch.export.load(path).module(),
        True,
        f"""\
import torch
model = torch.export.load("model.pt2").module()        # {_INPUT}""",
        """\
import numpy, torch
from PIL import Image
model = torch.export.load("model.pt2").module()
image = Image.open("cat.jpg")
if image.mode[0] == "I":        # 16-bit grey: the upper eight bits
    image = Image.fromarray((numpy.asarray(image) >> 8).astype("uint8"))
pixels = torch.from_numpy(numpy.array(image.convert("RGB")))
probabilities = model(pixels[None])[0]        # of uint8 [N, height, width, 3]""",
    ),
}


def usage(network: Network, to: str) -> str:
    """Return the Python code of a model card that reads a network written as `to`."""
    about, target = network.about, TARGETS[to]
    if is_preprocessed(network):
        return target.use_preprocessed.format()
    side = about.eval_size
    is_flexible = takes_any_size(network.model)
    return target.use.format(
        architecture=about.architecture.rpartition(":")[2],
        num_classes=about.num_classes,
        sides="height, width], any N, height and width" if is_flexible else f"{side}, {side}]",
    )


def export(network: Network, to: str, folder: Path) -> RunProgram:
    """Write a network into an empty folder, and return it as read back by its target program.

    Raises OSError, and TrainingError if the format cannot hold it.
    """
    target = TARGETS[to]
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"), torch.no_grad():
            try:
                target.write(network, folder / target.file)
            except OSError:
                raise
            except Exception as error:  # torch may raise anything for a network it cannot trace
                why = backbones.first_line(error)
                text = f"{to} cannot hold {network.about.architecture}: {why}"
                raise TrainingError(text) from error
            return target.read(folder / target.file, network.about)
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@torch.no_grad()
def largest_difference(
    one: nn.Module | RunProgram,
    other: nn.Module | RunProgram,
    images: Tensor,
    progress: Progress = silent,
) -> tuple[float, float]:
    """Return the largest difference between two networks' logits, and the first's largest logit.

    Images [N, 3, H, W] are compared in batches of 16, then three of them again, enlarged and wider
    than high, if the network takes them. Both are nan if a logit is.
    """
    height, width = images.shape[2:]
    wide = nn.functional.interpolate(images[:3], (height + 16, width + 40))
    is_flexible = not isinstance(one, nn.Module) or takes_any_size(one)
    batches = (*images.split(16), *([wide] if is_flexible else []))
    done, total, found = 0, sum(map(len, batches)), []
    progress(done, total)
    for batch in batches:
        logits = one(batch)
        found.append(torch.stack([(logits - other(batch)).abs().max(), logits.abs().max()]))
        done += len(batch)
        progress(done, total)
    difference, largest = torch.stack(found).amax(0).tolist()
    return difference, largest
