"""What the tests of kernels run on: the emulator, the emulator with NVRTC's code, and a GPU if there is one.

@pytest.fixture(params=KINDS)
def device(request):
    return device_of(request.param)
"""

import pytest
from cuda_emulator import MISSING, EmulatedDevice
from ptx_on_cpu import WITHOUT, PtxDevice

from stradask.kernels.cuda.device import cuda_device, why_no_device

NO_GPU = why_no_device()
emulated = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
compiled = pytest.mark.skipif(WITHOUT is not None, reason=str(WITHOUT))
on_gpu = [pytest.mark.gpu, pytest.mark.skipif(NO_GPU is not None, reason=str(NO_GPU))]
KINDS = [
    pytest.param("emulator", marks=emulated),
    pytest.param("compiled", marks=[compiled, pytest.mark.slow]),
    pytest.param("gpu", marks=on_gpu),
]


def device_of(kind, **options):
    """Open the device of a kind; the options are the emulator's."""
    if kind == "gpu":
        return cuda_device()
    return (PtxDevice if kind == "compiled" else EmulatedDevice)(**options)
