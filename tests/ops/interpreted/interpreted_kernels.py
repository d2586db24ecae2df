"""Operations of the CPU that run kernels in the Triton interpreter, for tests of kernels."""


def register_kernels(library, operation):
    """Let a CPU run the kernels of an operation while `library` lives."""
    name = operation.__name__.split(".")[-1]
    library.impl(name, operation._forward_cuda, "CPU", allow_override=True)
    if hasattr(operation, "_backward_cuda"):
        library.impl(f"{name}_backward", operation._backward_cuda, "CPU", allow_override=True)
