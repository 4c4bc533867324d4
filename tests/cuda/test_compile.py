"""Every source compiles for every GPU that is supported and spills no register: no GPU is needed for that."""

import importlib
from pathlib import Path

import pytest
from cuda_compilers import ARCHITECTURES, NVCC, compile_with_nvcc, compile_with_nvrtc, nvrtc_file

from stradask.kernels.cuda import launch

COMPILERS = [
    pytest.param(
        compile_with_nvcc,
        id="nvcc",
        marks=pytest.mark.skipif(
            NVCC is None or nvrtc_file() is not None,
            reason="nvcc is not there, or NVRTC is and stands for it",
        ),
    ),
    pytest.param(
        compile_with_nvrtc,
        id="nvrtc",
        marks=pytest.mark.skipif(
            nvrtc_file() is None, reason="NVRTC is not there (the wheel nvidia-cuda-nvrtc has it)"
        ),
    ),
]
HERE = Path(__file__).parent
USUAL = (80, 90)
MOST_REGISTERS = 128  # 512 threads of a multiprocessor's 64 K registers
SPILLS = """
extern "C" __global__ void __launch_bounds__(1024) spills(const float* in, float* out) {
  float x[96];
#pragma unroll
  for (int i = 0; i < 96; ++i) x[i] = in[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 96; ++i) out[i * 1024 + threadIdx.x] = x[i * 37 % 96];
}
"""


def sources():
    """Every source with every set of definitions that its file of launches lists, and one of the tests.

    Two architectures of the data centre stand for the others, and one where a source has a second set.
    """
    sets = [("streams.cu", HERE, {})]
    for path in sorted(launch.FOLDER.glob("*/*_cuda.py")):
        family = path.parent.name
        form = importlib.import_module(f"stradask.kernels.{family}.{path.stem}")
        file = f"{family}/{path.name}".replace("_cuda.py", ".cu")
        sets += [(file, launch.FOLDER, given) for given in form.VARIANTS]
    seen = set()
    for file, folder, definitions in sets:
        for architecture in ARCHITECTURES:
            rare = architecture not in (USUAL[1:] if file in seen else USUAL)
            text = launch.source(file, folder, **definitions)
            name = "-".join([file, *map(str, definitions.values()), str(architecture)])
            yield pytest.param(text, architecture, id=name, marks=[pytest.mark.slow] if rare else [])
        seen.add(file)


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(("text", "architecture"), list(sources()))
def test_a_source_compiles_and_spills_nothing(text, architecture, compiler):
    found = compiler(text, architecture)
    assert found.keys() == launch.declarations(text).keys()
    for name, usage in found.items():
        assert usage.spilled == 0, name
        assert usage.registers <= MOST_REGISTERS, name


@pytest.mark.parametrize("compiler", COMPILERS)
def test_spilled_registers_are_seen(compiler):
    found = compiler(SPILLS, 90)["spills"]
    assert found.spilled > 0
    assert found.registers <= 64


@pytest.mark.parametrize("compiler", COMPILERS)
def test_an_error_is_seen(compiler):
    with pytest.raises(AssertionError, match=r"undeclared|undefined"):
        compiler(SPILLS.replace("float x[96]", "float y[96]"), 90)
