"""Chunks of a corpus on a device: all of them resident, or streamed through two buffers.

Streamed chunks are in pinned host memory; while kernels run on one chunk, the next is copied in, and the
changes of the last one are copied out. A chunk may be any named tuple of arrays.
"""

import numpy as np


class Chunks:
    """Chunks on a device, for kernels in one stream.

    `chunks` are named tuples of one-dimensional arrays, all of the same fields and dtypes; `resident`: all
    stay on the device; `written`: the fields that kernels change.
    """

    def __init__(self, device, chunks, resident, stream, written):
        self.device, self.resident, self.written = device, resident, written
        self._compute, self._in, self._out = stream, device.stream(), device.stream()
        self._n = len(chunks)
        device.synchronize()  # what shares the memory's pool was queued elsewhere
        if resident:
            self._buffers = [_Buffer(device, [chunk]) for chunk in chunks]
            for buffer, chunk in zip(self._buffers, chunks, strict=True):
                buffer.load(chunk, stream)
            stream.synchronize()
        else:
            self._buffers = [_Buffer(device, chunks) for _ in range(2)]
            self._chunks = [self._pinned(chunk) for chunk in chunks]

    def __len__(self):
        return self._n

    def _pinned(self, chunk):
        """Copy a chunk to pinned memory, where copies run while kernels do."""
        arrays = []
        for array in chunk:
            arrays.append(self.device.pinned(array.shape, array.dtype))
            arrays[-1][...] = array
        return type(chunk)(*arrays)

    def visits(self, keep=True):
        """Yield number and device arrays of each chunk; without `keep` kernels must write nothing."""
        if self.resident:
            yield from ((c, buffer.held) for c, buffer in enumerate(self._buffers))
            return
        self._buffers[0].load(self._chunks[0], self._in)
        for c, chunk in enumerate(self._chunks):
            buffer = self._buffers[c % 2]
            self._compute.wait(self._in)
            if c + 1 < self._n:
                self._in.wait(self._out)  # the last chunk of that buffer is done with, and copied out
                self._buffers[(c + 1) % 2].load(self._chunks[c + 1], self._in)
            yield c, buffer.held
            self._out.wait(self._compute)
            for name in self.written if keep else ():
                if getattr(chunk, name).size:
                    self._out.copy_out(getattr(chunk, name), getattr(buffer.held, name))
        self._out.synchronize()

    def get(self, c, name):
        """Read an array of a chunk, after all work is done."""
        if self.resident:
            return self.device.get(getattr(self._buffers[c].held, name))
        return getattr(self._chunks[c], name)

    def put(self, c, name, array):
        """Replace an array of a chunk by another of its size, after all work is done."""
        if self.resident:
            if array.size:
                array = np.ascontiguousarray(array)  # it lives until its copy is done
                self._compute.copy_in(getattr(self._buffers[c].held, name), array)
                self._compute.synchronize()
        else:
            getattr(self._chunks[c], name)[...] = array


class _Buffer:
    """A buffer on the device for one chunk at a time."""

    def __init__(self, device, chunks):
        sizes = zip(*([array.size for array in chunk] for chunk in chunks), strict=True)
        kinds = [array.dtype for array in chunks[0]]
        self._arrays = [
            device.empty(max(max(size), 1), kind) for size, kind in zip(sizes, kinds, strict=True)
        ]

    def load(self, chunk, stream):
        """Queue the copies of a chunk; `held` are its views of it."""
        views = [whole[: array.size] for whole, array in zip(self._arrays, chunk, strict=True)]
        self.held = type(chunk)(*views)
        for view, array in zip(views, chunk, strict=True):
            if array.size:
                stream.copy_in(view, array)
