"""Compile Triton kernels for an absent GPU; read registers, spills and instructions."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


@dataclass
class Cubin:
    """A compiled kernel: its instructions and labels, and its register count."""

    lines: list[str]
    registers: int

    @property
    def spills(self) -> int:
        """Return the number of instructions that spill registers to memory or reload them."""
        return self.count(r"\b(STL|LDL)\b")

    def count(self, pattern: str) -> int:
        return sum(bool(re.search(pattern, line)) for line in self.lines)

    def count_first_loop(self) -> int:
        """Return the number of instructions in the first loop, which iterates over the rows."""
        for start, line in enumerate(self.lines):
            if label := re.match(r"(\.L_x_\d+):", line):
                back = [
                    i for i in range(start, len(self.lines)) if f"`({label[1]})" in self.lines[i]
                ]
                if back and back[-1] > start + 1:
                    return sum(
                        not line.startswith(".") for line in self.lines[start : back[-1] + 1]
                    )
        raise ValueError("the kernel has no loop")


def compile_cubin(
    kernel: triton.JITFunction,
    arch: int,
    types: dict[str, str],
    aligned: tuple[str, ...],
    options: dict[str, object],
    folder: Path,
    **constants: int | None,
) -> Cubin:
    """Compile `kernel` for arguments of the given `types` ("*bf16"); all others are i32.

    Arguments in `aligned` are divisible by 16. A constant pointer is None: the argument is not
    given.
    """
    names = kernel.arg_names
    types = {name: kind for name, kind in types.items() if name not in constants}
    signature = dict.fromkeys(names, "i32") | types | dict.fromkeys(constants, "constexpr")
    aligned = (*aligned, *(name for name, kind in types.items() if kind.startswith("*")))
    source = ASTSource(
        kernel,
        signature=signature,
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in aligned},
    )
    path = folder / f"{arch}.cubin"
    path.write_bytes(
        triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options).asm["cubin"]
    )
    usage = subprocess.run(
        [TOOLS / "cuobjdump", "-res-usage", path], capture_output=True, text=True, check=True
    ).stdout
    listing = subprocess.run(
        [TOOLS / "nvdisasm", "-c", path], capture_output=True, text=True, check=True
    ).stdout
    lines = [
        line for line in listing.splitlines() if re.match(r"\s*/\*[0-9a-f]{4,}\*/|\.L_x", line)
    ]
    lines = [line for line in lines if "NOP" not in line]
    return Cubin(lines, int(re.search(r"REG:(\d+)", usage)[1]))
