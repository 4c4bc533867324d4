"""CUDA: device, launcher, memory in chunks, shared headers."""
