"""The C++ steps of optimizers on a CPU: one pass over the memory, or two if norms of whole tensors are needed."""
