"""The launcher: what a source declares, and what it refuses before a kernel starts."""

import ast
import configparser
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pytest
from cuda_devices import emulated
from cuda_emulator import EmulatedDevice

from stradask.errors import DeviceError
from stradask.kernels.cuda import launch

SOURCE = """
typedef unsigned int word;
#include "part.cuh"
// extern "C" __global__ void commented(int* o) {}
extern "C" __global__ void __launch_bounds__(256)
take(const float* __restrict__ in, TOPIC* out, word* words, long long n, bool flag, const double x) {
  if (flag && threadIdx.x < n) out[threadIdx.x] = (TOPIC)(in[threadIdx.x] * x + twice(words[0]));
}
"""
PART = "__device__ word twice(word x) { return 2 * x; }\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "some.cu").write_text(SOURCE)
    (tmp_path / "part.cuh").write_text(PART)
    return tmp_path


def test_a_source_names_its_lines(folder):
    text = launch.source("some.cu", folder, TOPIC="unsigned short", A=1)
    head = '#define A 1\n#define TOPIC unsigned short\n#line 1 "some.cu"\n\ntypedef unsigned int word;\n'
    assert text.startswith(head + f'#line 1 "part.cuh"\n{PART}#line 4 "some.cu"\n// extern')


def test_a_header_is_taken_once(folder):
    (folder / "some.cu").write_text('#include "part.cuh"\n#include "part.cuh"\nint last;\n')
    lines = launch.source("some.cu", folder).splitlines()
    assert lines.count(PART.strip()) == 1
    assert lines[-2:] == ["", "int last;"]


def test_what_kernels_declare(folder):
    found = launch.declarations(launch.source("some.cu", folder, TOPIC="unsigned short"))
    assert found == {
        "take": (
            ("in", np.float32, True, True),
            ("out", np.uint16, True, False),
            ("words", np.uint32, True, False),
            ("n", np.int64, False, False),
            ("flag", np.bool_, False, False),
            ("x", np.float64, False, True),
        )
    }


def test_a_type_that_is_not_known(folder):
    with pytest.raises(DeviceError, match=r"take: .* parameter 'TOPIC\* out'"):
        launch.declarations(launch.source("some.cu", folder))


class TestArguments:
    """The check is the launcher's own: it is the same on a GPU."""

    pytestmark = emulated

    @pytest.fixture
    def device(self, folder):
        return EmulatedDevice(folder=folder)

    @pytest.fixture
    def kernels(self, device):
        return device.kernels("some.cu", TOPIC="unsigned short")

    @pytest.fixture
    def arguments(self, device):
        return {
            "in": device.put(np.arange(32, dtype=np.float32)),
            "out": device.zeros(32, np.uint16),
            "words": device.put(np.array([3], np.uint32)),
            "n": np.int64(30),
            "flag": np.bool_(True),
            "x": np.float64(2),
        }

    def test_those_declared(self, kernels, arguments):
        kernels.launch("take", 1, (32,), tuple(arguments.values()))
        assert arguments["out"].tolist() == [2 * i + 6 for i in range(30)] + [0, 0]

    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("n", 30, r"n is to be a numpy.int64, not a builtins.int"),
            ("x", 2.0, r"x is to be a numpy.float64, not a builtins.float"),
            ("flag", True, r"flag is to be a numpy.bool, not a builtins.bool"),
            ("n", np.int32(30), r"n is to be a numpy.int64, not of int32"),
            ("n", np.zeros(1, np.int64), r"n is to be a numpy.int64, not a numpy.ndarray"),
            ("in", np.zeros(32, np.float32), r"in is to be an array of float32 of the device, not a numpy"),
            ("in", None, r"in is to be an array of float32 of the device, not a builtins.NoneType"),
        ],
    )
    def test_others(self, kernels, arguments, name, value, message):
        with pytest.raises(DeviceError, match=f"^take: its argument {message}"):
            kernels.launch("take", 1, 32, tuple((arguments | {name: value}).values()))

    def test_an_array_of_another_dtype(self, device, kernels, arguments):
        arguments["words"] = device.zeros(1, np.int32)
        with pytest.raises(
            DeviceError, match=r"words is to be an array of uint32 of the device, not of int32"
        ):
            kernels.launch("take", 1, 32, tuple(arguments.values()))

    def test_an_array_with_gaps(self, device, kernels, arguments):
        arguments["in"] = device.zeros(64, np.float32)[::2]
        with pytest.raises(DeviceError, match="its argument in is not contiguous"):
            kernels.launch("take", 1, 32, tuple(arguments.values()))

    def test_an_array_that_may_not_be_written(self, kernels, arguments):
        arguments["in"].flags.writeable = arguments["out"].flags.writeable = False
        with pytest.raises(DeviceError, match="its argument out is read-only"):
            kernels.launch("take", 1, 32, tuple(arguments.values()))

    def test_too_few(self, kernels, arguments):
        with pytest.raises(DeviceError, match="take takes 6 arguments, not 5"):
            kernels.launch("take", 1, 32, tuple(arguments.values())[:5])

    def test_a_kernel_that_is_not_there(self, kernels):
        with pytest.raises(DeviceError, match="there is no kernel 'give', only take"):
            kernels.launch("give", 1, 32, ())

    @pytest.mark.parametrize("grid", [0, (1, 0), (1, 1, 1, 1), ()])
    def test_an_empty_grid(self, kernels, arguments, grid):
        with pytest.raises(DeviceError, match="take: the grid is to be of one to three numbers from 1 on"):
            kernels.launch("take", grid, 32, tuple(arguments.values()))

    @pytest.mark.parametrize(
        ("grid", "block", "shared"), [(1, 1025, 0), ((1, 70_000), 1, 0), (1, 32, 300_000)]
    )
    def test_more_than_a_device_has(self, kernels, arguments, grid, block, shared):
        with pytest.raises(DeviceError, match=r"block size|grid|shared memory"):
            kernels.launch("take", grid, block, tuple(arguments.values()), shared=shared)


# The package's own sources ---------------------------------------------------------------------------------


def _launched(path):
    """What a CUDA form launches: the sources that it takes, and the names of kernels.

    Names are strings or constants of the module; a method whose first argument is `name` may hand it on.
    """
    tree = ast.parse(path.read_text("utf-8"))
    constants = {
        statement.targets[0].id: statement.value.value
        for statement in tree.body
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
    }
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    handing = [f for f in functions if [argument.arg for argument in f.args.args[:2]] == ["self", "name"]]
    inside = {id(node) for function in handing for node in ast.walk(function)}
    launching = {"launch", *(function.name for function in handing)} - {"get"}  # that is for arrays
    sources, launched = set(), set()
    for call in ast.walk(tree):
        method = getattr(getattr(call, "func", None), "attr", None)
        if not isinstance(call, ast.Call) or method not in {"kernels", *launching} or id(call) in inside:
            continue
        first = call.args[0]
        name = first.value if isinstance(first, ast.Constant) else constants.get(getattr(first, "id", ""))
        assert isinstance(name, str), f"{path.name}: line {call.lineno} hides a name"
        (sources if method == "kernels" else launched).add(name)
    return sources, launched


FORMS = sorted(launch.FOLDER.glob("*/*_cuda.py"))


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_kernels_and_launches_agree(path):
    sources, launched = _launched(path)
    assert sources == {f"{path.parent.name}/{path.name}".replace("_cuda.py", ".cu")}
    declared = {
        name for file in sources for name in launch.KERNEL.findall((launch.FOLDER / file).read_text())
    }
    assert {name for name, _ in declared} == launched


def test_every_source_has_its_form():
    sources = {path.name for path in launch.FOLDER.rglob("*.cu")}
    assert sources == {path.name.replace("_cuda.py", ".cu") for path in FORMS}


def test_sources_are_in_the_wheel():
    settings = configparser.ConfigParser()
    settings.read(Path(__file__).parents[3] / "setup.cfg")
    patterns = [
        f"{package.removeprefix('stradask.kernels.')}/{pattern}"
        for package, names in settings["options.package_data"].items()
        for pattern in names.split(", ")
    ]
    files = (path for path in launch.FOLDER.rglob("*.cu*") if "__pycache__" not in path.parts)
    sources = [str(path.relative_to(launch.FOLDER)) for path in files]
    assert {"cuda/philox.cuh", "lda/light.cu"} <= set(sources)
    assert all(any(fnmatch(name, pattern) for pattern in patterns) for name in sources)
