"""The GPU: whether one can be used and why not, its memory and streams.

Nothing runs at import; CuPy is imported when a device is first needed. `cuda_device` finds every obstacle
before any work: no CuPy, no driver, a CuPy for another CUDA, a GPU too old.

CUDA forms of kernels use a GPU through `Device` alone; tests replace it (`standing_in`) by one that runs the
same sources on the CPU.
"""

from contextlib import contextmanager
from functools import cache

import numpy as np

from ...errors import DeviceError
from . import launch

OLDEST = (7, 5)  # compute capability: Turing; CUDA 13 compiles for none before
_TRIAL = 'extern "C" __global__ void trial(int* out) { out[threadIdx.x] = (int)threadIdx.x; }\n'
_OLDEST_DRIVER = 12000  # CUDA 12
_NO_DEVICE, _OLD_DRIVER = 100, 35  # cudaErrorNoDevice, cudaErrorInsufficientDriver

_stand_in = None


def cuda_device(number=None):
    """Return a working GPU: that of this number, or CuPy's current one.

    Raises `DeviceError`, with the reason and the remedy, if there is none.
    """
    if _stand_in is not None:
        return _stand_in
    _find()
    import cupy

    return _device(cupy.cuda.Device().id if number is None else number)


def why_no_device():
    """Return the reason why no GPU can be used, in a line; None if one can."""
    try:
        cuda_device()
    except DeviceError as error:
        return str(error)
    return None


def device_for(choice):
    """Return the GPU for ``"cuda"``, or for ``"auto"`` if one can be used; None for the CPU."""
    if choice == "cpu" or (choice == "auto" and why_no_device() is not None):
        return None
    return cuda_device()


@contextmanager
def standing_in(device):
    """Replace the GPU by a device, for tests."""
    global _stand_in
    before, _stand_in = _stand_in, device
    try:
        yield device
    finally:
        _stand_in = before


def _find():
    """Import CuPy and count the devices; raise what is missing."""
    try:
        import cupy
    except ModuleNotFoundError as error:
        if error.name != "cupy":
            raise DeviceError(f"CuPy cannot be imported ({error}); {_reinstall()}") from error
        raise DeviceError(
            "CuPy is not installed: pip install 'stradask[cuda]', or 'stradask[cuda13]' with CUDA 13"
        ) from None
    except Exception as error:  # whatever a broken installation raises
        raise DeviceError(f"CuPy cannot be imported ({_line(error)}); {_remedy(error)}") from error
    runtime = cupy.cuda.runtime
    try:
        n_devices = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        raise DeviceError(_no_count(runtime, error)) from error
    if n_devices < 1:
        raise DeviceError(_no_count(runtime, None))


def _no_count(runtime, error):
    """The reason why the devices cannot be counted."""
    status = getattr(error, "status", _NO_DEVICE)
    driver, built_for = runtime.driverGetVersion(), runtime.runtimeGetVersion()
    if status == _OLD_DRIVER and driver == 0:
        return "there is no NVIDIA driver on this machine: install it, or use device='cpu'"
    if status == _OLD_DRIVER and driver < _OLDEST_DRIVER:
        return f"the NVIDIA driver knows CUDA {_version(driver)}: install a newer one, of CUDA 12 or later"
    if status == _OLD_DRIVER:
        return (
            f"the NVIDIA driver knows CUDA {_version(driver)} and CuPy is built for {_version(built_for)}: "
            f"install cupy-cuda{driver // 1000}x in place of the present CuPy, or a newer driver"
        )
    if status == _NO_DEVICE:
        return (
            "the NVIDIA driver finds no GPU: look at nvidia-smi and CUDA_VISIBLE_DEVICES, or use device='cpu'"
        )
    return f"CUDA does not start ({_line(error)}): look at nvidia-smi"


@cache
def _device(number):
    """Open a device once, after a trial kernel has run there."""
    import cupy

    cuda = cupy.cuda
    n_devices = cuda.runtime.getDeviceCount()
    if not 0 <= number < n_devices:
        raise DeviceError(f"there is no GPU {number}: this machine has {n_devices}, numbered from 0")
    properties = cuda.runtime.getDeviceProperties(number)
    name = properties["name"].decode()
    capability = properties["major"], properties["minor"]
    if capability < OLDEST:
        raise DeviceError(
            f"{name} is of compute capability {_dotted(capability)}, and the kernels need {_dotted(OLDEST)} "
            "(Turing, 2018) or later: use device='cpu'"
        )
    device = Device(number, name, properties)
    try:
        with cuda.Device(number):
            out = cupy.zeros(32, np.int32)
            launch.CudaKernels(_TRIAL, number).launch("trial", 1, 32, (out,))
            works = bool((out.get() == np.arange(32)).all())
    except Exception as error:  # NVRTC that is missing, of another CUDA, a device taken by others, ...
        raise DeviceError(
            f"{name} is there, but a first kernel does not run ({_line(error)}); {_remedy(error)}"
        ) from error
    if not works:
        raise DeviceError(f"{name} is there, but a first kernel computes nonsense; {_reinstall()}")
    return device


def _remedy(error):
    """The remedy if CuPy cannot be used."""
    if isinstance(error, OSError) and error.errno is not None and error.filename is not None:
        return "CuPy keeps compiled kernels in files: set CUPY_CACHE_DIR to a folder that can be written"
    return _reinstall()


def _reinstall():
    return (
        "install the CuPy of the driver's CUDA, and no other, with CUDA's own libraries: "
        "pip uninstall cupy-cuda12x cupy-cuda13x, then pip install 'cupy-cuda13x[ctk]' or "
        "'cupy-cuda12x[ctk]' (nvidia-smi tells which CUDA the driver has)"
    )


def _version(number):
    return f"{number // 1000}.{number % 1000 // 10}"


def _dotted(pair):
    return f"{pair[0]}.{pair[1]}"


def _line(error):
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


class Device:
    """A GPU: arrays, streams and kernels on it.

    `n_processors` counts multiprocessors; `shared_memory` is in bytes a block, `l2_memory` in bytes.
    """

    def __init__(self, number, name, properties):
        self.number, self.name = number, name
        self.n_processors = properties["multiProcessorCount"]
        self.shared_memory = properties["sharedMemPerBlockOptin"]
        self.l2_memory = properties["l2CacheSize"]
        self._modules = {}

    def __repr__(self):
        return f"<{self.name}, GPU {self.number}>"

    @property
    def xp(self):
        """The module of functions over its arrays: CuPy."""
        import cupy

        return cupy

    def kernels(self, file, **definitions):
        """Return the kernels of a ``.cu`` file, compiled for this device with these definitions."""
        key = (file, tuple(sorted(definitions.items())))
        if key not in self._modules:
            text = launch.source(file, **definitions)
            self._modules[key] = launch.CudaKernels(text, self.number)
        return self._modules[key]

    def free_memory(self):
        """Free bytes, including CuPy's own reserve."""
        import cupy

        with self._here() as here:
            return here.mem_info[0] + cupy.get_default_memory_pool().free_bytes()

    def empty(self, shape, dtype):
        """Make an uninitialised array."""
        return self._made("empty", shape, dtype)

    def zeros(self, shape, dtype):
        """Make an array of zeros."""
        return self._made("zeros", shape, dtype)

    def clear(self, array):
        """Fill an array of the device with zeros, after the work before it."""
        with self._here(), launch.failures(f"a kernel before zeros on {self.name}"):
            array.fill(0)

    def put(self, array):
        """Copy an array of the host to the device."""
        array = np.ascontiguousarray(array)
        there = self.empty(array.shape, array.dtype)
        with launch.failures(f"a kernel before a copy to {self.name}"):
            there.set(array)
        return there

    def moved(self, array):
        """Return the array itself if it is on the device, else a copy there."""
        return array if isinstance(array, self.xp.ndarray) else self.put(array)

    def get(self, array):
        """Copy an array to the host, after the work before it is done."""
        with self._here(), launch.failures(f"a kernel before a copy from {self.name}"):
            return array.get()

    def pinned(self, shape, dtype):
        """Make a host array that can be copied while kernels run.

        It is freed with its last user: CuPy's pool would keep it for the life of the process.
        """
        import cupy

        dtype, cuda = np.dtype(dtype), cupy.cuda
        size = int(np.prod(shape))
        try:
            with self._here():
                memory = cuda.PinnedMemoryPointer(cuda.PinnedMemory(max(size * dtype.itemsize, 1)), 0)
        except cuda.runtime.CUDARuntimeError as error:
            raise DeviceError(
                f"there is no room for {size * dtype.itemsize:,} bytes of pinned memory on the host"
            ) from error
        return np.frombuffer(memory, dtype, size).reshape(shape)

    def stream(self):
        """Open a stream in addition to the device's own."""
        with self._here():
            return Stream(self.number)

    def synchronize(self):
        """Wait until all work is done; raises the errors of kernels."""
        with self._here() as here, launch.failures(f"a kernel on {self.name}"):
            here.synchronize()

    @contextmanager
    def computing(self):
        """Run functions of `xp` on this device; their failures are raised as `DeviceError`."""
        import cupy

        try:
            with self._here(), launch.failures(f"a computation on {self.name}"):
                yield
        except cupy.cuda.memory.OutOfMemoryError as error:
            raise self._no_room(_line(error)) from error
        except (ImportError, OSError, cupy.cuda.compiler.CompileException) as error:
            raise DeviceError(
                f"CuPy lacks what it computes with on {self.name} ({_line(error)}); {_remedy(error)}"
            ) from error

    def _made(self, how, shape, dtype):
        import cupy

        try:
            with self._here(), launch.failures(f"a kernel before a new array on {self.name}"):
                return getattr(cupy, how)(shape, dtype)
        except cupy.cuda.memory.OutOfMemoryError as error:
            wanted = int(np.prod(shape)) * np.dtype(dtype).itemsize
            raise self._no_room(f"{wanted:,} more bytes") from error

    def _no_room(self, wanted):
        return DeviceError(
            f"{self.name} has no room for {wanted} ({self.free_memory():,} are free): end what else runs "
            "there, take a smaller model or smaller chunks, or use device='cpu'"
        )

    def _here(self):
        import cupy

        return cupy.cuda.Device(self.number)


class Stream:
    """Copies and kernels in order, independent of other streams.

    The arrays of a copy must live until it is done; those of the host must be `Device.pinned`.
    """

    def __init__(self, number):
        import cupy

        self.cuda = cupy.cuda
        self.number = number
        self.queue = cupy.cuda.Stream(non_blocking=True)

    def copy_in(self, there, array):
        """Copy an array of the host to one of the device."""
        self._copy(there.data.ptr, array.ctypes.data, there, array, self.cuda.runtime.memcpyHostToDevice)

    def copy_out(self, array, there):
        """Copy an array of the device to one of the host."""
        self._copy(array.ctypes.data, there.data.ptr, array, there, self.cuda.runtime.memcpyDeviceToHost)

    def _copy(self, target, origin, to, of, direction):
        check_copy(to, of)
        with (
            self.cuda.Device(self.number),
            launch.failures(f"a kernel before a copy, or it, on GPU {self.number}"),
        ):
            self.cuda.runtime.memcpyAsync(target, origin, to.nbytes, direction, self.queue.ptr)

    def wait(self, other):
        """Start what is queued from now on after all that is queued in another stream."""
        with self.cuda.Device(self.number):  # the event must be of the streams' device, not of the thread's
            self.queue.wait_event(other.queue.record())

    def synchronize(self):
        """Wait until all that is queued here is done; raises the errors of kernels."""
        with launch.failures(f"a kernel on GPU {self.number}"):
            self.queue.synchronize()


def check_copy(to, of):
    """Refuse a copy between arrays that differ."""
    same = to.dtype == of.dtype and to.size == of.size
    if not (same and to.flags.c_contiguous and of.flags.c_contiguous):
        raise DeviceError(
            f"a copy is between contiguous arrays of one dtype and size, not {to.size} of {to.dtype} "
            f"and {of.size} of {of.dtype}"
        )
