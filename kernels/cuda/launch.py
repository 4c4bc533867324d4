"""The one launcher of CUDA kernels: source text, declarations, the check of arguments, compiling by CuPy.

A kernel is in a ``.cu`` file of `stradask.kernels` as ``extern "C" __global__ void name(...)``, and its file
``*_cuda.py`` launches it. It is compiled when it is first needed, once a device and set of definitions::

    kernels = device.kernels("lda/saber.cu", TOPIC="unsigned short")
    kernels.launch("sample", grid, block, (topics, np.int32(n)), shared=4096)

Arguments are arrays of the device, or numpy scalars of exactly the declared type. Python numbers are refused:
CuPy would pass an int as 8 bytes and a float as a double, whatever the kernel declares. CUDA itself checks
nothing: there a wrong type is a wrong number, or a write to anywhere.

Sources are plain C++17 with no headers but the ``.cuh`` files of this folder, so that the same text also runs
where there is no GPU (the tests run it under a C++ compiler), and a file ``*_cuda.py`` lists in ``VARIANTS``
the definitions that it may compile with, so that the tests compile them all for every GPU.
"""

import re
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...errors import DeviceError

HEADERS = Path(__file__).resolve().parent
FOLDER = HEADERS.parent  # of sources: their names have the folder of the family in front
# No fused multiply-add unless the source asks for it: the same sums on every machine, bit for bit. CuPy adds
# -ftz=true: floats below 2^-126 are 0, so that a kernel whose bits are promised must not meet any.
OPTIONS = ("--std=c++17", "-fmad=false")
_FREE_SHARED = 48 * 1024  # bytes of shared memory, declared and dynamic, that a block may have unasked

_TYPES = {
    "bool": "?",
    "signed char": "i1",
    "unsigned char": "u1",
    "short": "i2",
    "unsigned short": "u2",
    "int": "i4",
    "unsigned": "u4",
    "unsigned int": "u4",
    "long long": "i8",
    "unsigned long long": "u8",
    "float": "f4",
    "double": "f8",
}
_INCLUDE = re.compile(r'\s*#include\s+"([\w.]+)"\s*')
_DEFINE = re.compile(r"^[ \t]*#define[ \t]+(\w+)[ \t]+([\w ]+?)[ \t]*$", re.MULTILINE)
_TYPEDEF = re.compile(r"\btypedef\s+([\w\s]+?)\s+(\w+)\s*;")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
KERNEL = re.compile(
    r'extern\s+"C"\s+__global__\s+void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\(([^)]*)\)'
)
_PARAMETER = re.compile(
    r"(?P<const>const\s+)?(?P<type>[\w\s]+?)\s*(?P<star>\*)?\s*(?:__restrict__\s*)?\b(?P<name>\w+)"
)


class Parameter(NamedTuple):
    """A parameter of a kernel: name, dtype, whether it is an array, and whether that is const."""

    name: str
    dtype: np.dtype
    is_array: bool
    is_const: bool


def source(file, folder=FOLDER, **definitions):
    """The text of a ``.cu`` file, definitions first and headers inlined (of its folder or `HEADERS`)."""
    head = [f"#define {name} {value}" for name, value in sorted(definitions.items())]
    return "\n".join([*head, *_expand(file, Path(folder), set())]) + "\n"


def _expand(file, folder, seen):
    """Yield the lines of a file and its headers, with line numbers for the compiler's messages."""
    yield f'#line 1 "{file}"'
    path = folder / file if (folder / file).exists() else HEADERS / file
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        header = _INCLUDE.fullmatch(line)
        if header and header[1] not in seen:
            seen.add(header[1])
            yield from _expand(header[1], folder, seen)
            yield f'#line {number + 1} "{file}"'
        else:
            yield "" if header else line


@cache
def declarations(text):
    """Return the parameters of each kernel of a source, by name."""
    text = _COMMENT.sub(" ", text)
    types = dict(_TYPES)
    for new, old in _DEFINE.findall(text) + [pair[::-1] for pair in _TYPEDEF.findall(text)]:
        old = " ".join(old.split())
        if old in types:
            types[new] = types[old]
    return {
        name: tuple(_parameter(name, part.strip(), types) for part in parameters.split(",") if part.strip())
        for name, parameters in KERNEL.findall(text)
    }


def _parameter(kernel, text, types):
    match = _PARAMETER.fullmatch(text)
    kind = match and " ".join(match["type"].split())
    if kind not in types:
        raise DeviceError(f"{kernel}: the launcher does not know the type of its parameter {text!r}")
    return Parameter(match["name"], np.dtype(types[kind]), bool(match["star"]), bool(match["const"]))


class Kernels:
    """The kernels of one source on one device, whose type of array is `array`; launches are checked."""

    def __init__(self, text, array):
        self.text, self.array = text, array
        self.declared = declarations(text)

    def launch(self, name, grid, block, arguments, shared=0, stream=None):
        """Start a kernel, without waiting for it.

        `grid` and `block` are numbers of blocks and of threads in each, or tuples of up to three; `arguments`
        are arrays and numpy scalars of exactly the declared types (else `DeviceError`); `shared` is in bytes
        a block.
        """
        self._check(name, arguments)
        self._start(
            name, _triple(name, "grid", grid), _triple(name, "block", block), arguments, shared, stream
        )

    def _start(self, name, grid, block, arguments, shared, stream):
        raise NotImplementedError

    def _check(self, name, arguments):
        if name not in self.declared:
            raise DeviceError(f"there is no kernel {name!r}, only {', '.join(sorted(self.declared))}")
        declared = self.declared[name]
        if len(declared) != len(arguments):
            raise DeviceError(f"{name} takes {len(declared)} arguments, not {len(arguments)}")
        for parameter, value in zip(declared, arguments, strict=True):
            trouble = self._trouble(parameter, value)
            if trouble:
                raise DeviceError(f"{name}: its argument {parameter.name} {trouble}")

    def _trouble(self, parameter, value):
        """Say how an argument differs from its declaration; None if it does not."""
        wanted = self.array if parameter.is_array else np.generic
        what = f"a numpy.{parameter.dtype}"
        if parameter.is_array:
            what = f"an array of {parameter.dtype} of the device"
        if not isinstance(value, wanted):
            return f"is to be {what}, not a {type(value).__module__}.{type(value).__name__}"
        if value.dtype != parameter.dtype:
            return f"is to be {what}, not of {value.dtype}"
        if parameter.is_array and not value.flags.c_contiguous:
            return "is not contiguous"
        if parameter.is_array and not parameter.is_const and not getattr(value.flags, "writeable", True):
            return "is read-only, and the kernel may write it"
        return None


def _triple(name, what, sizes):
    sizes = (sizes,) if isinstance(sizes, (int, np.integer)) else tuple(sizes)
    if not 1 <= len(sizes) <= 3 or min(sizes) < 1:
        raise DeviceError(f"{name}: the {what} is to be of one to three numbers from 1 on, not {sizes}")
    return tuple(int(size) for size in sizes) + (1,) * (3 - len(sizes))


@contextmanager
def failures(what):
    """Raise CUDA's errors, maybe of earlier kernels, as `DeviceError`."""
    import cupy

    try:
        yield
    except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError) as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise DeviceError(
            f"{what} failed ({said}): start Python again, since this process may not use the GPU any more; "
            "where it fails again, compute-sanitizer tells the place"
        ) from error


class CudaKernels(Kernels):
    """The kernels of one source on a GPU, compiled by CuPy, which caches the machine code on disk."""

    def __init__(self, text, number):
        import cupy

        super().__init__(text, cupy.ndarray)
        self._here = cupy.cuda.Device(number)
        self._module = cupy.RawModule(code=text, options=OPTIONS)
        self._functions = {}

    def _start(self, name, grid, block, arguments, shared, stream):
        queue = None if stream is None else stream.queue
        with self._here, failures(f"a kernel before {name} or its launch on GPU {self._here.id}"):
            if name not in self._functions:
                self._functions[name] = self._module.get_function(name)
            function = self._functions[name]
            if shared and shared + function.shared_size_bytes > _FREE_SHARED:
                function.max_dynamic_shared_size_bytes = shared
            function(grid, block, tuple(arguments), shared_mem=shared, stream=queue)

    def _trouble(self, parameter, value):
        trouble = super()._trouble(parameter, value)
        if trouble is None and parameter.is_array and value.device != self._here:
            return f"lies on GPU {value.device.id}, not on {self._here.id}"
        return trouble
