"""What a Triton kernel becomes for a GPU that need not be here: registers, spills, instructions."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
ARCHITECTURES = (80, 90, 100)      # A100, H100 and H200, B200


@dataclass
class Cubin:
    """A compiled kernel: its instructions, and whether registers went to memory."""

    instructions: list[str]
    spills: bool

    def count(self, pattern: str) -> int:
        """Return how many instructions match."""
        return sum(bool(re.search(pattern, line)) for line in self.instructions)


def cubin(
    kernel: triton.JITFunction, arch: int, arrays: dict[str, str], aligned: tuple[str, ...], options: dict[str, object],
    folder: Path, **constants: int,
) -> Cubin:
    """Compile `kernel` for `arrays` of the types named ("bf16"), `aligned` integers divisible by 16, and other i32."""
    names = kernel.arg_names
    types = dict.fromkeys(names, "i32") | dict.fromkeys(constants, "constexpr")
    types |= {name: f"*{kind}" for name, kind in arrays.items()}
    source = ASTSource(
        kernel, signature=types, constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in (*arrays, *aligned)},
    )
    path = folder / f"{arch}.cubin"
    path.write_bytes(triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options).asm["cubin"])
    usage = subprocess.run([TOOLS / "cuobjdump", "-res-usage", path], capture_output=True, text=True, check=True).stdout
    listing = subprocess.run([TOOLS / "nvdisasm", "-c", path], capture_output=True, text=True, check=True).stdout
    lines = [line for line in listing.splitlines() if re.match(r"\s*/\*[0-9a-f]{4,}\*/", line) and "NOP" not in line]
    return Cubin(lines, "STACK:0 " not in usage)
