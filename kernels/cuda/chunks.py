"""Chunks of a corpus on a device: all of them stay there, or they take turns in two places.

Where they take turns, they lie in pinned memory of the host; while kernels run over one chunk, the next is
copied in, and what was written of the last one is copied out. Kernels of one sampler use it for any chunk
that is a named tuple of arrays.
"""

import numpy as np


class Chunks:
    """Chunks where kernels find them.

    Parameters
    ----------
    device : stradask.kernels.cuda.device.Device
    chunks : sequence of named tuples of arrays
        One-dimensional, and of the same fields and dtypes.
    resident : bool
        Whether all stay on the device.
    stream : stream of the device
        In which the kernels run.
    written : tuple of str
        Fields that kernels change.
    """

    def __init__(self, device, chunks, resident, stream, written):
        self.device, self.resident, self.written = device, resident, written
        self._compute, self._in, self._out = stream, device.stream(), device.stream()
        self._n = len(chunks)
        device.synchronize()  # what shares the memory's pool was queued elsewhere
        if resident:
            self._places = [_Place(device, [chunk]) for chunk in chunks]
            for place, chunk in zip(self._places, chunks, strict=True):
                place.load(chunk, stream)
            stream.synchronize()
        else:
            self._places = [_Place(device, chunks) for _ in range(2)]
            self._chunks = [self._pinned(chunk) for chunk in chunks]

    def __len__(self):
        return self._n

    def _pinned(self, chunk):
        """Copy a chunk to where copies run beside kernels."""
        arrays = []
        for array in chunk:
            arrays.append(self.device.pinned(array.shape, array.dtype))
            arrays[-1][...] = array
        return type(chunk)(*arrays)

    def visits(self, keep=True):
        """Give the chunks one after the other, as arrays on the device.

        Parameters
        ----------
        keep : bool, default=True
            Keep what kernels write; to be False where they write nothing.

        Yields
        ------
        c, chunk : int, named tuple of arrays of the device
        """
        if self.resident:
            yield from ((c, place.held) for c, place in enumerate(self._places))
            return
        self._places[0].load(self._chunks[0], self._in)
        for c, chunk in enumerate(self._chunks):
            place = self._places[c % 2]
            self._compute.wait(self._in)
            if c + 1 < self._n:
                self._in.wait(self._out)  # what lay in that place before is done with, and copied out
                self._places[(c + 1) % 2].load(self._chunks[c + 1], self._in)
            yield c, place.held
            self._out.wait(self._compute)
            for name in self.written if keep else ():
                if getattr(chunk, name).size:
                    self._out.copy_out(getattr(chunk, name), getattr(place.held, name))
        self._out.synchronize()

    def get(self, c, name):
        """Read an array of a chunk; all work is to be done."""
        if self.resident:
            return self.device.get(getattr(self._places[c].held, name))
        return getattr(self._chunks[c], name)

    def put(self, c, name, array):
        """Replace an array of a chunk by another of its size; all work is to be done."""
        if self.resident:
            if array.size:
                array = np.ascontiguousarray(array)  # it lives until its copy is done
                self._compute.copy_in(getattr(self._places[c].held, name), array)
                self._compute.synchronize()
        else:
            getattr(self._chunks[c], name)[...] = array


class _Place:
    """Room on the device for one chunk at a time, whichever of some."""

    def __init__(self, device, chunks):
        sizes = zip(*([array.size for array in chunk] for chunk in chunks), strict=True)
        kinds = [array.dtype for array in chunks[0]]
        self._room = [device.empty(max(max(size), 1), kind) for size, kind in zip(sizes, kinds, strict=True)]

    def load(self, chunk, stream):
        """Queue the copies of a chunk; `held` are the parts of the room that it takes."""
        views = [room[: array.size] for room, array in zip(self._room, chunk, strict=True)]
        self.held = type(chunk)(*views)
        for view, array in zip(views, chunk, strict=True):
            if array.size:
                stream.copy_in(view, array)
