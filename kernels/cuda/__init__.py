"""CUDA: the device, the launcher, memory in chunks, and shared headers."""
