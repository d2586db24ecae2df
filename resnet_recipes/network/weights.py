"""Read and write weights files that describe their network."""

import hashlib
import json
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import safetensors.torch
import torch
from torch import Tensor, nn

from resnet_recipes.base.atomic import replace_file
from resnet_recipes.base.errors import Hint
from resnet_recipes.data.tensors import read_tensors
from resnet_recipes.methods.stochastic_depth import fold_state
from resnet_recipes.network import about, archive
from resnet_recipes.network.about import NetworkDescription
from resnet_recipes.network.archive import ArchiveError, State

#: Key of the network description in the metadata of a file.
KEY = "resnet_recipes"


#: Suffixes of networks for other programs, which are not read.
EXPORTED = {".onnx": "ONNX", ".pt2": "torch.export", ".tflite": "TFLite", ".engine": "TensorRT"}


class ExportedError(ArchiveError):
    """The file is a network for another program."""

    fix = (Hint("pass the run, the checkpoint or the weights file that it was exported from"),)

    def __init__(self, path: Path):
        super().__init__(f"{EXPORTED[path.suffix.lower()]} files are not read")


class WeightsFile(NamedTuple):
    """The contents of a weights file or checkpoint."""

    content: State
    about: NetworkDescription | None  # None if the file does not describe its network


def write_weights(model: nn.Module, path: Path, description: NetworkDescription) -> Path:
    """Write the weights of `model` and a description; return `path`.

    The suffix selects the format: .safetensors, or torch.save for any other suffix. StochasticDepth
    factors are folded into the last BatchNorm of each block. BlurPool cannot be folded, so
    inference with these weights needs its layers. `model` is not changed. Raises OSError if the
    file cannot be written.
    """
    state = fold_state(model)
    for name, tensor in state.items():
        state[name] = tensor.cpu().contiguous()
    text = description.to_json()
    with replace_file(path) as file:
        if path.suffix == ".safetensors":
            metadata = {"format": "pt", KEY: text, "sha256": compute_digest(state, text)}
            _write_sorted(file, safetensors.torch.save(dict(state), metadata))
        else:
            _get_private_metadata(state)[KEY] = text
            memory = BytesIO()  # torch.save to a file hides the cause of a failed write
            torch.save(state, memory)
            file.write(memory.getbuffer())
    return path


def _get_private_metadata(state: Mapping[str, Any]) -> State:
    """Return torch's private metadata of a state dict, which `load_state_dict` ignores."""
    return getattr(state, "_metadata", {})


def _write_sorted(file: BinaryIO, saved: bytes) -> None:
    """Write a .safetensors file with its metadata sorted; the library writes it in random order."""
    end = 8 + int.from_bytes(saved[:8], "little")
    header = json.loads(saved[8:end])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # tensors start at multiples of 8 bytes
    file.write(len(text).to_bytes(8, "little") + text)
    file.write(memoryview(saved)[end:])


def read_weights(path: Path) -> WeightsFile:
    """Return the contents of a weights file or checkpoint.

    Nothing in the file is executed. Raises OSError if the file cannot be read. Raises ValueError,
    with a message for the user, if it is damaged, contains more than tensors and plain Python, or
    was exported for another program.
    """
    if path.suffix.lower() in EXPORTED:
        raise ExportedError(path)
    if path.suffix != ".safetensors":
        state = archive.read(path)
        text = _get_private_metadata(state).get(KEY)
        return WeightsFile(state, None if text is None else about.from_json(str(text)))
    state, metadata = read_tensors(path, archive.MAX_ARCHIVE_BYTES)
    if not metadata.keys() - {"format"}:
        return WeightsFile(state, None)  # a file of torchvision or timm
    if KEY not in metadata or metadata.get("sha256") != compute_digest(state, metadata[KEY]):
        raise ArchiveError("checksum mismatch: it is damaged or was modified")
    return WeightsFile(state, about.from_json(metadata[KEY]))


def compute_digest(state: Mapping[str, Tensor], text: str) -> str:
    """Return the SHA-256 of a description and all tensors (name, dtype, shape, bytes).

    Takes 0.1 s for ResNet-50.
    """
    sha = hashlib.sha256(text.encode())
    for name, tensor in sorted(state.items()):
        sha.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        sha.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()
