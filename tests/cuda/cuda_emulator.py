"""A stand-in for the GPU: the sources of kernels, compiled for the CPU (cuda_on_cpu.h) and run lane by lane.

    with standing_in(EmulatedDevice(seed=3)):
        estimator.fit(X)                      # device="cuda" runs here

Arrays of the device are numpy arrays with a zone on either side that no kernel may write; that is checked
after every launch, as is everything that `cuda_on_cpu.h` lists. With `sanitize` the library is built for
AddressSanitizer or ThreadSanitizer, and the process must be one of `sanitized`.
"""

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import weakref
from pathlib import Path

import numpy as np

from stradask.errors import DeviceError
from stradask.kernels.cuda import device, launch

HERE = Path(__file__).resolve().parent
COMPILER = os.environ.get("CXX", "g++")
MISSING = None if shutil.which(COMPILER) else f"the C++ compiler {COMPILER} is not there"
_FLAGS = ["-std=c++20", "-O1", "-g1", "-fPIC", "-shared", "-ffp-contract=off", "-fno-strict-aliasing"]
_FLAGS += ["-fvisibility=hidden"]  # libraries of several sources share nothing
_SANITIZERS = {
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"],
    "thread": ["-fsanitize=thread"],
}
_ZONE, _FILLING = 256, 0xA5  # bytes on either side of an array, and what they hold


class EmulatedArray(np.ndarray):
    """An array of the emulated device; a mere numpy array is none, as on a GPU."""


class EmulatedDevice(device.Device):
    """A GPU that is not one.

    Parameters
    ----------
    seed : int
        0 runs lanes, warps and blocks in order, any other number in a random one.
    sanitize : {None, "address", "thread"}
    flags : sequence of str
        More of the compiler's.
    folder : path
        Where the sources lie.
    memory : int
        Bytes that arrays may take.
    stack : int
        Bytes of a lane's stack.
    lazy : int
        Bit k lets the k-th of its streams (of every three) put off what is queued until somebody waits.
    """

    def __init__(
        self, seed=0, *, sanitize=None, flags=(), folder=launch.FOLDER, memory=2**34, stack=None, lazy=0
    ):
        properties = {"multiProcessorCount": 4, "sharedMemPerBlockOptin": 227 * 1024, "l2CacheSize": 2**20}
        super().__init__(0, "emulated GPU", properties)
        self.seed, self.folder, self.memory = seed, folder, memory
        self.flags = (*flags, *_SANITIZERS.get(sanitize, ()))
        self.stack = stack or (256 << 10 if sanitize else 64 << 10)
        self.zone = 0 if sanitize else _ZONE  # a sanitizer has zones of its own
        self.arrays = weakref.WeakValueDictionary()  # by the address of the memory that holds their zones
        self.launches = []  # names of the kernels that ran
        self.lazy, self._streams = lazy, []

    @property
    def xp(self):
        return np

    def kernels(self, file, **definitions):
        key = (file, tuple(sorted(definitions.items())))
        if key not in self._modules:
            self._modules[key] = self.built(file, launch.source(file, self.folder, **definitions))
        return self._modules[key]

    def built(self, file, text):
        """Compile the text of a source."""
        return EmulatedKernels(text, self)

    def free_memory(self):
        return self.memory - sum(len(held) for held in self.arrays.values())

    def empty(self, shape, dtype):
        dtype = np.dtype(dtype)
        size = int(np.prod(shape)) * dtype.itemsize
        if size > self.free_memory():
            raise DeviceError(f"{self.name} has no room for {size:,} more bytes")
        held = EmulatedArray(size + 2 * self.zone, np.uint8)  # numpy's memory begins at a multiple of 16
        held.fill(_FILLING)
        self.arrays[held.ctypes.data] = held
        return held[self.zone : self.zone + size].view(dtype).reshape(shape)

    def zeros(self, shape, dtype):
        array = self.empty(shape, dtype)
        array[...] = 0
        return array

    def clear(self, array):
        array[...] = 0

    def put(self, array):
        there = self.empty(np.shape(array), np.asarray(array).dtype)
        there[...] = array
        return there

    def get(self, array):
        return np.array(array)

    def spoilt(self, array):
        """Whether something was written beside an array that this device has made."""
        held = array
        while isinstance(held.base, EmulatedArray):
            held = held.base
        if self.arrays.get(held.ctypes.data) is not held:
            return False
        zones = held[: self.zone], held[len(held) - self.zone :]
        return any(bool((zone != _FILLING).any()) for zone in zones)

    def pinned(self, shape, dtype):
        return np.empty(shape, dtype)

    def stream(self):
        self._streams.append(EmulatedStream(bool(self.lazy >> len(self._streams) % 3 & 1)))
        return self._streams[-1]

    def synchronize(self):
        for stream in self._streams:
            stream.synchronize()


class EmulatedStream:
    """A queue in which everything is done at once, or, if it is lazy, as late as may be."""

    def __init__(self, is_lazy=False):
        self.is_lazy, self._queued, self._n_done = is_lazy, [], 0

    def queue(self, work):
        """Do some work after all that is queued."""
        self._queued.append(work)
        if not self.is_lazy:
            self.synchronize()

    def copy_in(self, there, array):
        device.check_copy(there, array)
        self.queue(lambda: there.__setitem__(..., array.reshape(there.shape)))

    def copy_out(self, array, there):
        device.check_copy(array, there)
        self.queue(lambda: array.__setitem__(..., there.reshape(array.shape)))

    def wait(self, other):
        n = other.length()
        self.queue(lambda: other.advance(n))

    def length(self):
        """How much was ever queued."""
        return self._n_done + len(self._queued)

    def advance(self, n):
        """Do what is queued up to number n."""
        while self._n_done < n:
            self._n_done += 1
            self._queued.pop(0)()

    def synchronize(self):
        self.advance(self.length())


class _Options(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("seed", "stack")]


class EmulatedKernels(launch.Kernels):
    """The kernels of one source, compiled for the CPU."""

    _one = threading.Lock()  # a launch at a time in a library, and ctypes lets others run meanwhile

    def __init__(self, text, device):
        super().__init__(text, EmulatedArray)
        self.device = device
        self._library = ctypes.CDLL(str(build(text, device.flags)))
        self._library.emu_name.restype = self._library.emu_signature.restype = ctypes.c_char_p
        self._table = {
            self._library.emu_name(i).decode(): (i, self._library.emu_signature(i).decode())
            for i in range(self._library.emu_count())
        }

    def _start(self, name, grid, block, arguments, shared, stream):
        index, compiled = self._table[name]
        given = "".join(map(_code, arguments))
        if compiled.replace("c,", ",") != given:  # the compiler's own view of the declaration
            raise DeviceError(f"{name}: compiled for {compiled} and called with {given}")
        start = functools.partial(self._run, name, index, grid, block, arguments, shared)
        if stream is None:
            start()
        else:
            stream.queue(start)

    def _run(self, name, index, grid, block, arguments, shared):
        slots = [_slot(value) for value in arguments]
        pointers = (ctypes.c_void_p * max(len(slots), 1))(*map(ctypes.addressof, slots))
        options = _Options(self.device.seed, self.device.stack)
        message = ctypes.create_string_buffer(8192)
        sizes = ctypes.c_uint * 3
        with self._one:
            failed = self._library.emu_launch(
                index, sizes(*grid), sizes(*block), ctypes.c_uint(shared), pointers,
                ctypes.byref(options), message, ctypes.c_size_t(len(message)),
            )  # fmt: skip
        self.device.launches.append(name)
        if failed:
            raise DeviceError(message.value.decode())
        for parameter, value in zip(self.declared[name], arguments, strict=True):
            if parameter.is_array and self.device.spoilt(value):
                raise DeviceError(f"{name}: wrote outside of its argument {parameter.name}")


def _code(value):
    return f"{'P' if isinstance(value, np.ndarray) else ''}{value.dtype.itemsize}{value.dtype.kind},"


def _slot(value):
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(value.ctypes.data if value.size else None)
    return ctypes.create_string_buffer(value.tobytes(), 16)


def build(text, flags=()):
    """Compile a source; the library is kept by the hash of all that goes into it."""
    if MISSING:
        raise DeviceError(MISSING)
    headers = [(HERE / name).read_text() for name in ("fibers.h", "warps.h", "cuda_on_cpu.h", "ptx_on_cpu.h")]
    body = f'#include "cuda_on_cpu.h"\n{text}\n'
    body += "".join(f'EMU_KERNEL("{name}", ({name}))\n' for name in launch.declarations(text))
    command = [COMPILER, *_FLAGS, *flags, f"-I{HERE}"]
    key = hashlib.sha256("\0".join([*command, body, *headers]).encode()).hexdigest()[:32]
    library = _folder() / f"{key}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=_folder()) as work:
            made = Path(work, "kernels.so")
            Path(work, "kernels.cpp").write_text(body)
            command += ["-o", str(made), f"{work}/kernels.cpp"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise DeviceError(f"the source does not compile for the CPU:\n{done.stderr[:6000]}")
            os.replace(made, library)  # at once: several processes may build the same
    return library


@functools.cache
def _folder():
    """Where libraries are kept: beside this file as Python keeps its code, else for this process alone."""
    beside = HERE / "__pycache__" / "emulated"
    try:
        beside.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=beside).close()
    except OSError:
        return Path(tempfile.mkdtemp(prefix="stradask-emulator-"))
    return beside


def sanitized(which, script, *arguments, folders=()):
    """Run a script in a process that has a sanitizer's runtime before everything else.

    It imports from this folder, and from `folders`.

    Returns
    -------
    str or None
        What it wrote to stderr; None where the compiler has no such sanitizer.
    """
    name = {"address": "libasan.so", "thread": "libtsan.so"}[which]
    command = [COMPILER, f"-print-file-name={name}"]
    runtime = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if not os.path.isabs(runtime):
        return None
    environment = {
        **os.environ,
        "LD_PRELOAD": runtime,
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": "detect_leaks=0",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(
            filter(None, [*map(str, folders), str(HERE), os.environ.get("PYTHONPATH")])
        ),
    }
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(
        command, cwd=HERE, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    return done.stderr
