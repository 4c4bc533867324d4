"""What is said where there is no GPU, or one that cannot be used: before any work, with what to do."""

import builtins
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from stradask.errors import DeviceError
from stradask.kernels.cuda import device, launch


class RuntimeFailure(Exception):
    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


class DriverFailure(Exception):
    pass


class CompileFailure(Exception):
    pass


class Module:
    """A compiled module whose one kernel does what it is told."""

    def __init__(self, code, options):
        self.options = options

    def get_function(self, name):
        def kernel(grid, block, arguments, shared_mem, stream):
            arguments[0][...] = FakeGpu.answer

        return kernel


class FakeArray(np.ndarray):
    device = None

    def get(self):
        return np.array(self)


class FakeGpu:
    """As much of CuPy as the door asks."""

    answer = np.arange(32)

    def __init__(self, count=1, driver=13020, built_for=13020, capability=(9, 0), status=None):
        self.count, self.driver, self.built_for, self.status = count, driver, built_for, status
        self.capability = capability
        self.ndarray, self.RawModule = FakeArray, Module
        self.runtime = SimpleNamespace(
            CUDARuntimeError=RuntimeFailure,
            getDeviceCount=self.get_count,
            driverGetVersion=lambda: self.driver,
            runtimeGetVersion=lambda: self.built_for,
            getDeviceProperties=self.get_properties,
        )
        memory = SimpleNamespace(OutOfMemoryError=MemoryError)
        driver = SimpleNamespace(CUDADriverError=DriverFailure)
        self.cuda = SimpleNamespace(runtime=self.runtime, driver=driver, Device=self.device, memory=memory)
        self.cuda.compiler = SimpleNamespace(CompileException=CompileFailure)

    def get_count(self):
        if self.status:
            raise RuntimeFailure(self.status, f"cudaError {self.status}")
        return self.count

    def get_properties(self, number):
        return {
            "name": b"Tesla Test",
            "major": self.capability[0],
            "minor": self.capability[1],
            "multiProcessorCount": 132,
            "sharedMemPerBlockOptin": 2**17,
            "l2CacheSize": 2**20,
        }

    def device(self, number=0):
        return Here(number)

    def zeros(self, shape, dtype):
        if np.prod(shape) > 1000:
            raise MemoryError("out of memory")
        made = np.zeros(shape, dtype).view(FakeArray)
        made.device = Here(Here.current)
        return made

    empty = zeros

    def get_default_memory_pool(self):
        return SimpleNamespace(free_bytes=lambda: 24)


class Here:
    mem_info = (4000, 8000)
    current = 0

    def __init__(self, number):
        self.id = number

    def __eq__(self, other):
        return self.id == other.id

    def __enter__(self):
        self.before, Here.current = Here.current, self.id
        return self

    def __exit__(self, *_):
        Here.current = self.before
        return False


@pytest.fixture
def gpu(monkeypatch):
    """Put a fake CuPy in the place of the real one."""

    def put(**options):
        fake = FakeGpu(**options)
        monkeypatch.setitem(sys.modules, "cupy", fake)
        device._device.cache_clear()
        return fake

    yield put
    device._device.cache_clear()


def test_a_gpu_that_works(gpu):
    gpu()
    found = device.cuda_device()
    assert found is device.cuda_device(0)
    assert (found.name, found.n_processors, found.number) == ("Tesla Test", 132, 0)
    assert device.why_no_device() is None


def test_no_cupy(monkeypatch):
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(builtins, "__import__", _without("cupy", ModuleNotFoundError("gone", name="cupy")))
    with pytest.raises(DeviceError, match=r"CuPy is not installed: pip install 'stradask\[cuda\]'"):
        device.cuda_device()


@pytest.mark.parametrize("error", [ImportError("libcudart.so.12: no such file"), RuntimeError("broken")])
def test_a_cupy_that_cannot_be_imported(monkeypatch, error):
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(builtins, "__import__", _without("cupy", error))
    with pytest.raises(
        DeviceError, match=rf"cannot be imported \(\w+: {error}\); install the CuPy of the driver"
    ):
        device.cuda_device()


@pytest.mark.parametrize("kind", [PermissionError, FileNotFoundError])
def test_a_folder_of_compiled_kernels_that_cannot_be_made(gpu, monkeypatch, kind):
    """CuPy makes it when it is imported, and writes there after the first kernel is compiled."""
    error = kind(13, "no", "/home/none/.cupy")
    message = (
        rf"\({kind.__name__}: .*/home/none/.cupy'\).* set CUPY_CACHE_DIR to a folder that can be written"
    )
    gpu().RawModule = lambda code, options: (_ for _ in ()).throw(error)
    with pytest.raises(DeviceError, match="a first kernel does not run " + message):
        device.cuda_device()
    monkeypatch.delitem(sys.modules, "cupy")
    monkeypatch.setattr(builtins, "__import__", _without("cupy", error))
    with pytest.raises(DeviceError, match="CuPy cannot be imported " + message):
        device.cuda_device()


def _without(package, error):
    real = builtins.__import__

    def replacement(name, *rest):
        if name.partition(".")[0] == package:
            raise error
        return real(name, *rest)

    return replacement


WRONG = {
    "no driver": ({"status": 35, "driver": 0}, "there is no NVIDIA driver on this machine: install it"),
    "driver of another CUDA": (
        {"status": 35, "driver": 12080},
        r"the NVIDIA driver knows CUDA 12\.8 and CuPy is built for 13\.2: install cupy-cuda12x",
    ),
    "driver of a CUDA too old": (
        {"status": 35, "driver": 11080},
        r"the NVIDIA driver knows CUDA 11\.8: install a newer one",
    ),
    "no device": (
        {"status": 100},
        "the NVIDIA driver finds no GPU: look at nvidia-smi and CUDA_VISIBLE_DEVICES",
    ),
    "none of them": ({"count": 0}, "the NVIDIA driver finds no GPU"),
    "something else": ({"status": 999}, r"CUDA does not start \(RuntimeFailure: cudaError 999\)"),
    "too old": (
        {"capability": (7, 0)},
        r"Tesla Test is of compute capability 7\.0, and the kernels need 7\.5",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_said_with_a_remedy(gpu, wrong):
    options, message = WRONG[wrong]
    gpu(**options)
    with pytest.raises(DeviceError, match=message):
        device.cuda_device()
    assert device.why_no_device().startswith(message[:9])


def test_a_number_that_no_gpu_has(gpu):
    gpu(count=2)
    with pytest.raises(DeviceError, match="there is no GPU 2: this machine has 2, numbered from 0"):
        device.cuda_device(2)


def test_a_compiler_that_is_missing(gpu, monkeypatch):
    gpu()

    def fail(code, options):
        raise OSError("libnvrtc.so.13: cannot open shared object file")

    monkeypatch.setattr(sys.modules["cupy"], "RawModule", fail)
    with pytest.raises(
        DeviceError,
        match=r"a first kernel does not run \(OSError: libnvrtc.*pip install 'cupy-cuda13x\[ctk\]'",
    ):
        device.cuda_device()


def test_a_gpu_that_computes_nonsense(gpu, monkeypatch):
    gpu()
    monkeypatch.setattr(FakeGpu, "answer", 7)
    with pytest.raises(DeviceError, match="a first kernel computes nonsense"):
        device.cuda_device()


def test_no_room(gpu):
    gpu()
    with pytest.raises(
        DeviceError, match=r"Tesla Test has no room for 8,000 more bytes \(4,024 are free\): end what"
    ):
        device.cuda_device().empty((2, 1000), np.float32)


class Queue:
    """A stream that knows on which device it is spoken to, as CUDA's events do."""

    ptr = 0

    def __init__(self, non_blocking):
        assert non_blocking
        self.device = Here.current

    def record(self):
        assert Here.current == self.device
        return "an event"

    def wait_event(self, event):
        assert (Here.current, event) == (self.device, "an event")
        self.waited = True


def test_a_thread_whose_current_gpu_is_another_queues_on_the_right_one(gpu):
    """Threads begin with GPU 0 as theirs, whatever the one that started them has."""
    fake, copied = gpu(count=3), []
    fake.cuda.Stream = Queue
    fake.runtime.memcpyHostToDevice = fake.runtime.memcpyDeviceToHost = 1
    fake.runtime.memcpyAsync = lambda *arguments: copied.append((Here.current, arguments[2]))
    first, second = (device.cuda_device(2).stream() for _ in range(2))
    assert Here.current == 0
    first.wait(second)
    assert (first.queue.device, first.queue.waited) == (2, True)
    here = np.zeros(5, np.int32)
    there = SimpleNamespace(dtype=here.dtype, size=5, flags=here.flags, data=SimpleNamespace(ptr=0))
    first.copy_out(here, there)
    assert copied == [(2, 20)]


@pytest.mark.parametrize("failure", [RuntimeFailure(700, "illegal address"), DriverFailure("no image")])
def test_what_cuda_says_later_is_told_with_a_remedy(gpu, failure):
    """Errors of kernels come from whatever is called next."""
    fake, found = gpu(), device.cuda_device()

    def fail(*_, **options):
        raise failure

    class Failing:
        shared_size_bytes, ptr, synchronize, __call__ = 0, 0, fail, fail

        def __init__(self, non_blocking=True):
            pass

    fake.cuda.Stream, fake.runtime.memcpyAsync, fake.runtime.memcpyHostToDevice = Failing, fail, 1
    fake.RawModule = lambda code, options: SimpleNamespace(get_function=lambda name: Failing())
    stream, here = found.stream(), np.zeros(5, np.int32)
    there = SimpleNamespace(dtype=here.dtype, size=5, flags=here.flags, nbytes=20, get=fail, fill=fail)
    there.data = SimpleNamespace(ptr=0)

    def compute():
        with found.computing():
            fail()

    def put():
        fake.empty = lambda *form: SimpleNamespace(set=fail)
        found.put(here)

    def make():
        fake.empty = fail
        found.empty(5, np.int32)

    kernels = launch.CudaKernels('extern "C" __global__ void nothing() {}', 0)
    for use, what in (
        (lambda: kernels.launch("nothing", 1, 32, ()), "a kernel before nothing or its launch on GPU 0"),
        (stream.synchronize, "a kernel on GPU 0"),
        (lambda: stream.copy_in(there, here), "a kernel before a copy, or it, on GPU 0"),
        (lambda: found.get(there), "a kernel before a copy from Tesla Test"),
        (lambda: found.clear(there), "a kernel before zeros on Tesla Test"),
        (compute, "a computation on Tesla Test"),
        (put, "a kernel before a copy to Tesla Test"),
        (make, "a kernel before a new array on Tesla Test"),
    ):
        with pytest.raises(DeviceError, match=rf"{what} failed \(.*{failure}\): start Python again"):
            use()


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (CompileFailure("cannot open cuda_fp16.h"), r"lacks .* cuda_fp16.h\); .* 'cupy-cuda12x\[ctk\]'"),
        (ImportError("libcublas.so.13"), r"CuPy lacks .*Tesla Test .*libcublas.*'cupy-cuda13x\[ctk\]'"),
        (
            RuntimeFailure(700, "illegal address"),
            r"a computation on Tesla Test failed .*: start Python again",
        ),
        (MemoryError("8 bytes"), "Tesla Test has no room for MemoryError: 8 bytes"),
    ],
)
def test_what_computations_lack_is_told_with_a_remedy(gpu, failure, message):
    gpu()
    with pytest.raises(DeviceError, match=message), device.cuda_device().computing():
        raise failure


def test_pinned_memory_is_not_kept_by_a_pool(gpu):
    fake = gpu()

    def allocate(n_bytes):
        if n_bytes > 1000:
            raise RuntimeFailure(2, "out of memory")
        return bytearray(n_bytes)

    fake.cuda.PinnedMemory, fake.cuda.PinnedMemoryPointer = allocate, lambda memory, offset: memory
    assert device.cuda_device().pinned((2, 3), np.int64).shape == (2, 3)
    assert device.cuda_device().pinned(0, np.int64).shape == (0,)
    with pytest.raises(DeviceError, match="no room for 1,008 bytes of pinned memory on the host"):
        device.cuda_device().pinned(126, np.int64)


@pytest.mark.parametrize(
    ("shared", "asked"), [(0, None), (48 * 1024 - 16, None), (48 * 1024 - 8, 48 * 1024 - 8)]
)
def test_shared_memory_is_asked_for_where_what_is_declared_makes_it_too_much(gpu, shared, asked):
    class Function:
        shared_size_bytes, max_dynamic_shared_size_bytes = 16, None

        def __call__(self, grid, block, arguments, shared_mem, stream):
            assert (shared_mem, self.max_dynamic_shared_size_bytes) == (shared, asked)

    gpu().RawModule = lambda code, options: SimpleNamespace(get_function=lambda name: Function())
    text = 'extern "C" __global__ void nothing() {}'
    launch.CudaKernels(text, 0).launch("nothing", 1, 32, (), shared=shared)


def test_import_asks_for_nothing():
    script = (
        "import sys, stradask.kernels.cuda.device; print({'cupy', 'numba', 'distributed'} & {*sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout.strip() == "set()"
