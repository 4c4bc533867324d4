"""NVIDIA's compilers without a GPU: nvcc, and NVRTC as CuPy calls it; what a kernel needs of a GPU."""

import ctypes
import functools
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from stradask.kernels.cuda.launch import OPTIONS

ARCHITECTURES = (75, 80, 86, 89, 90, 120)
BY_CUPY = ("-ftz=true", "--device-as-default-execution-space")  # what CuPy adds to the launcher's options
NVCC = shutil.which("nvcc")


class Usage(NamedTuple):
    """What the assembler says of a kernel: registers a thread, bytes spilled, static shared memory."""

    registers: int
    spilled: int
    shared: int


def compile_with_nvcc(text, architecture):
    """Compile a source; return the `Usage` of its kernels by name."""
    with tempfile.TemporaryDirectory() as work:
        Path(work, "source.cu").write_text(text)
        command = [NVCC, *OPTIONS, "-ftz=true", f"-arch=sm_{architecture}", "-Xptxas=-v", "-cubin"]
        command += ["-Werror=all-warnings", f"-o={work}/out", f"{work}/source.cu"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    return usage(done.stderr)


def usage(log):
    """Read what ptxas -v writes."""
    found = {}
    for part in re.split(r"Compiling entry function '", log)[1:]:
        name = part.split("'", 1)[0]
        spilled = re.findall(r"(\d+) bytes spill (?:stores|loads)", part)
        shared = re.search(r"(\d+) bytes smem", part)
        registers = re.search(r"Used (\d+) registers", part)
        assert registers, part
        found[name] = Usage(int(registers[1]), sum(map(int, spilled)), int(shared[1]) if shared else 0)
    return found


@functools.cache
def nvrtc_file():
    """Where NVRTC lies, of NVIDIA's wheel (nvidia-cuda-nvrtc) or a CUDA toolkit; None without one."""
    places = [(Path(folder), "nvidia/cu13/lib/libnvrtc.so.13") for folder in sys.path if folder]
    places += [(Path(folder), "nvidia/cuda_nvrtc/lib/libnvrtc.so.12") for folder in sys.path if folder]
    places.append((Path("/usr/local/cuda"), "lib64/libnvrtc.so"))
    for folder, name in places:
        if (folder / name).exists():
            return folder / name
    return None


@functools.cache
def nvrtc():
    """Load NVRTC."""
    for part in nvrtc_file().parent.glob("libnvrtc-builtins.so.*"):
        ctypes.CDLL(str(part))  # which the wheel of 13.0 does not find beside it
    return ctypes.CDLL(str(nvrtc_file()))


def compile_with_nvrtc(text, architecture):
    """Compile a source with the launcher's own options and those that CuPy adds."""
    log, _ = _by_nvrtc(text, f"-arch=sm_{architecture}", "--ptxas-options=-v")
    return usage(log)


def ptx_by_nvrtc(text, architecture):
    """Return what the compiler hands to the assembler of a GPU's own code."""
    return _by_nvrtc(text, f"-arch=compute_{architecture}")[1]


def _by_nvrtc(text, *more):
    """Compile a source; return what is said, and its PTX."""
    library, program = nvrtc(), ctypes.c_void_p()
    options = [*OPTIONS, *BY_CUPY, *more]
    library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"source.cu", 0, None, None)
    given = (ctypes.c_char_p * len(options))(*map(str.encode, options))
    failed = library.nvrtcCompileProgram(program, len(options), given)
    log = _read(program, library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog)
    assert not failed, log[:4000]
    ptx = _read(program, library.nvrtcGetPTXSize, library.nvrtcGetPTX)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return log, ptx


def _read(program, size_of, read):
    size = ctypes.c_size_t()
    size_of(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    read(program, text)
    return text.value.decode()
