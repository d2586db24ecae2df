"""Export a trained network for other programs, and read it back with each program."""

import json
import logging
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import torch
import torchvision
from torch import Tensor, nn

from resnet_recipes import backbones
from resnet_recipes.base import atomic
from resnet_recipes.base.errors import TrainingError
from resnet_recipes.base.text import Progress, do_nothing, get_first_line
from resnet_recipes.inference.inputs import (
    Program,
    is_any_size_accepted,
    is_preprocessed,
    make_inputs,
)
from resnet_recipes.network.about import NetworkDescription
from resnet_recipes.network.load import Network, load
from resnet_recipes.network.weights import KEY, write_weights


class ExportFormat(NamedTuple):
    """An export format: functions that write a network and read it back, and code that uses it."""

    file: str
    program: str  # the program that reads it
    write: Callable[[Network, Path], None]
    read: Callable[[Path, NetworkDescription], Program]
    # whether it supports any network; if not, only weights of the program's own architectures
    supports_any: bool
    use: str  # Python code that reads it
    use_preprocessed: str = ""  # code for an export with preprocessing; "" if not supported
    needs: tuple[str, ...] = ("",)  # an extra of this package, and the packages in it


def _write_weights(network: Network, path: Path) -> None:
    write_weights(network.model, path, network.about)


def _read_torchvision(path: Path, about: NetworkDescription) -> Program:
    name = about.architecture.removeprefix("torchvision:")
    make = getattr(torchvision.models, name)
    model = make(num_classes=about.num_classes, **about.arguments).eval()
    model.load_state_dict(torch.load(path, weights_only=True))
    return model


def _write_timm(network: Network, path: Path) -> None:
    about = network.about
    config_of_timm = backbones.get_pretrained_cfg(network.model)
    _write_weights(network, path)
    facts = {
        "num_classes": about.num_classes,
        "input_size": [3, about.eval_size, about.eval_size],
        "pool_size": None,
        "crop_pct": compute_crop_fraction(about.eval_size, about.eval_resize),
        "crop_mode": {"crop": "center", "pad": "border"}.get(about.fit, about.fit),
        "interpolation": about.eval_interpolation,
        "mean": [value / 255 for value in about.mean],
        "std": [value / 255 for value in about.std],
        "first_conv": config_of_timm.get("first_conv", "conv1"),
        "classifier": config_of_timm.get("classifier", "fc"),
        "label_names": list(about.classes) or None,
    }
    config = {
        "architecture": about.architecture.removeprefix("timm:"),
        "num_classes": about.num_classes,
        "model_args": dict(about.arguments),
        "pretrained_cfg": facts,
    }
    (path.parent / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def compute_crop_fraction(size: int, resize: int) -> float:
    """Return `crop_pct` for timm: the fraction with floor(size / fraction) equal to `resize`."""
    fraction = size / resize
    while math.floor(size / fraction) < resize:  # 192 / (192 / 225) is a little less than 225
        fraction = math.nextafter(fraction, 0)
    return fraction


def _read_timm(path: Path, _: NetworkDescription) -> Program:
    import timm

    return timm.create_model(f"local-dir:{path.parent}", pretrained=True).eval()


def _write_onnx(network: Network, path: Path) -> None:
    _save_onnx(network, path, is_any_size_accepted(network.model))
    if _read_fixed_size(path) not in (0, network.about.eval_size):  # the size of the example
        _save_onnx(network, path, False)
    _write_description(path, network)


def _save_onnx(network: Network, path: Path, any_size: bool) -> None:
    example, shapes = make_inputs(network, any_size)
    with _allow_any_size():
        torch.onnx.export(
            network.model,
            (example,),
            path,
            dynamo=True,
            dynamic_shapes=shapes,
            input_names=["images"],
            output_names=["probabilities" if is_preprocessed(network) else "logits"],
            external_data=False,
            verbose=False,
        )


def _read_fixed_size(path: Path) -> int:
    """Return the height or width that an ONNX file requires of images, or 0 if it accepts any.

    torch.onnx fixes the size of the example, without an error, if operations depend on it.
    """
    import onnx

    images = onnx.load(path).graph.input[0]
    return images.type.tensor_type.shape.dim[2].dim_value


def _write_description(path: Path, network: Network) -> None:
    import onnx

    model = onnx.load(path)
    facts = {KEY: network.about.to_json(), "classes": json.dumps(network.classes)}
    onnx.helper.set_model_props(model, facts)
    onnx.save(model, path)


def _read_onnx(path: Path, _: NetworkDescription) -> Program:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda images: torch.from_numpy(session.run(None, {"images": images.numpy()})[0])


def quantize_onnx(network: Network, folder: Path, images: Tensor) -> Program:
    """Quantize the weights of the ONNX file in `folder` to int8; return a function that runs it.

    Activations are uint8, with the ranges of normalized `images` [N, 3, S, S] (Jacob et al., 2017,
    arXiv:1712.05877). Takes seconds to a minute.
    """
    from onnxruntime.quantization import quant_pre_process, quantize_static

    inputs = ({"images": image.numpy()} for image in images.split(1))
    reader = SimpleNamespace(get_next=lambda: next(inputs, None))
    path = folder / FORMATS["onnx"].file
    with _silence_libraries(), atomic.make_temporary_folder() as temporary:
        quant_pre_process(path, temporary / path.name)
        quantize_static(temporary / path.name, path, reader, per_channel=True)
    _write_description(path, network)
    return _read_onnx(path, network.about)


@contextmanager
def _silence_libraries() -> Iterator[None]:
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(logging.NOTSET)


def _write_exported_program(network: Network, path: Path) -> None:
    try:
        memory = _save_program(network, any_size=True)
    except Exception:  # torch may raise any exception if operations depend on the image size
        memory = _save_program(network, any_size=False)
    path.write_bytes(memory.getbuffer())  # torch would abort the process on a full disk


def _save_program(network: Network, any_size: bool) -> BytesIO:
    example, shapes = make_inputs(network, any_size)
    memory = BytesIO()
    with _allow_any_size():
        program = torch.export.export(network.model, (example,), dynamic_shapes=shapes)
    torch.export.save(program, memory, extra_files={f"{KEY}.json": network.about.to_json()})
    return memory


@contextmanager
def _allow_any_size() -> Iterator[None]:
    """Allow small images, whose last feature map is one pixel.

    Uses a private setting of torch; torch.export would otherwise require more than one pixel.
    """
    from torch.fx.experimental import _config as config

    with config.patch(backed_size_oblivious=True):
        yield


_INPUT_COMMENT = "float32 [N, 3, {size}; (pixel - mean) / std by channel, of 0..255"

FORMATS = {
    "torchvision": ExportFormat(
        "model.pt",
        "torchvision",
        _write_weights,
        _read_torchvision,
        False,
        """\
import torch, torchvision
model = torchvision.models.{architecture}(num_classes={num_classes}).eval()
model.load_state_dict(torch.load("model.pt", weights_only=True))""",
    ),
    "timm": ExportFormat(
        "model.safetensors",
        "timm",
        _write_timm,
        _read_timm,
        False,
        """\
import timm
model = timm.create_model("local-dir:FOLDER", pretrained=True).eval()        # this folder""",
        needs=("timm", "timm"),
    ),
    "safetensors": ExportFormat(
        "model.safetensors",
        "resnet_recipes",
        _write_weights,
        lambda path, _: load(path).model,
        True,
        """\
import resnet_recipes as rr
network = rr.load("model.safetensors")""",
    ),
    "onnx": ExportFormat(
        "model.onnx",
        "onnxruntime",
        _write_onnx,
        _read_onnx,
        True,
        f"""\
import numpy, onnxruntime
session = onnxruntime.InferenceSession("model.onnx")
images = numpy.zeros((1, 3, {{image_size}}, {{image_size}}), "float32")        # {_INPUT_COMMENT}
logits, = session.run(["logits"], {{{{"images": images}}}})""",
        """\
import json, numpy, onnxruntime
from PIL import Image
session = onnxruntime.InferenceSession("model.onnx")
classes = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
image = Image.open("cat.jpg")
if image.mode[0] == "I":        # 16-bit grayscale: the upper eight bits
    image = Image.fromarray((numpy.asarray(image) >> 8).astype("uint8"))
pixels = numpy.asarray(image.convert("RGB"))        # uint8 [height, width, 3]
probabilities = session.run(["probabilities"], {{"images": pixels[None]}})[0][0]
print(classes[probabilities.argmax()], probabilities.max())""",
        needs=("export", "onnx", "onnxruntime", "onnxscript"),
    ),
    "exported_program": ExportFormat(
        "model.pt2",
        "torch.export",
        _write_exported_program,
        lambda path, _: torch.export.load(path).module(),
        True,
        f"""\
import torch
model = torch.export.load("model.pt2").module()        # images: {_INPUT_COMMENT}""",
        """\
import numpy, torch
from PIL import Image
model = torch.export.load("model.pt2").module()
image = Image.open("cat.jpg")
if image.mode[0] == "I":        # 16-bit grayscale: the upper eight bits
    image = Image.fromarray((numpy.asarray(image) >> 8).astype("uint8"))
pixels = torch.from_numpy(numpy.array(image.convert("RGB")))
probabilities = model(pixels[None])[0]        # of uint8 [N, height, width, 3]""",
    ),
}


def format_usage(network: Network, to: str, any_size: bool) -> str:
    """Return the Python code in the model card of a network exported as `to`.

    `any_size` is whether the export accepts images of any size.
    """
    about = network.about
    chosen = FORMATS[to]
    if is_preprocessed(network):
        return chosen.use_preprocessed.format()
    image_size = about.eval_size
    return chosen.use.format(
        architecture=about.architecture.rpartition(":")[2],
        num_classes=about.num_classes,
        image_size=image_size,
        size="height, width], any N, height and width"
        if any_size
        else f"{image_size}, {image_size}]",
    )


def export(network: Network, to: str, folder: Path) -> Program:
    """Write a network to an empty folder and return it as read back by the target program.

    Raises OSError, or TrainingError if the format does not support the network.
    """
    chosen = FORMATS[to]
    with _silence_libraries(), torch.no_grad():
        try:
            chosen.write(network, folder / chosen.file)
        except OSError:
            raise
        except Exception as error:  # libraries may raise any exception for a network
            why = get_first_line(error)
            text = f"{to} cannot hold {network.about.architecture}: {why}"
            raise TrainingError(text) from error
        return chosen.read(folder / chosen.file, network.about)


class Comparison(NamedTuple):
    """The difference between the logits of two networks."""

    difference: float  # the largest absolute difference
    largest: float  # the first network's largest absolute logit


@torch.no_grad()
def compare_logits(
    first: Program,
    second: Program,
    images: Tensor,
    progress: Progress = do_nothing,
) -> Comparison:
    """Compare the logits of two networks.

    The images [N, 3, H, W] are compared in batches of 16. If both networks accept any size, up to
    three of them are compared again, enlarged and wider than high. Both values are nan if any logit
    is nan.
    """
    height, width = images.shape[2:]
    wide = nn.functional.interpolate(images[:3], (height + 16, width + 40))
    is_flexible = is_any_size_accepted(first) and is_any_size_accepted(second)
    batches = (*images.split(16), *([wide] if is_flexible else []))
    done, maxima = 0, []
    progress(done, len(images))
    for batch in batches:
        logits = first(batch)
        maxima.append(torch.stack([(logits - second(batch)).abs().max(), logits.abs().max()]))
        done = min(done + len(batch), len(images))
        progress(done, len(images))
    return Comparison(*torch.stack(maxima).amax(0).tolist())
