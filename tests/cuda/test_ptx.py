"""NVRTC's code on the CPU: its instructions one by one, what it must refuse, and the kernels' bits.

The tests of the kernels run on it, too, as ``compiled``, where slow tests do.
"""

import math
import zlib
from fractions import Fraction
from pathlib import Path

import cuda_compilers
import numpy as np
import pytest
from cuda_devices import compiled
from cuda_emulator import EmulatedKernels, sanitized
from ptx_on_cpu import PtxDevice, translated

import stradask as sd
from stradask.datasets.generators import make_lda_corpus
from stradask.errors import DeviceError
from stradask.kernels.cuda import launch
from stradask.kernels.cuda.device import standing_in

pytestmark = compiled
HERE = Path(__file__).parent
WORDS = [0, 1, 2, 31, 32, 33, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF, 0x12345678, 0xF0F0A5C3]


def _signed(x, bits=32):
    return x - 2**bits if x >> (bits - 1) else x


def _short_by_zero(a, b):
    """A quotient is rounded towards 0."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _field(x, start, n, signed):
    """Bits of a number, of which those beyond its end are its sign."""
    whole = _signed(x) if signed else x
    found = (whole >> min(start, 64)) & (2**n - 1) if n else 0
    if signed and n:
        sign = whole >> min(start + n - 1, 31) & 1
        found = found | (-1 << n) if sign else found
    return found


def _into(a, b, start, n):
    mask = (2**n - 1) << start & 0xFFFFFFFF if start < 32 else 0
    return (b & ~mask) | (a << start & mask)


def _permuted(a, b, how):
    data = (b << 32 | a).to_bytes(8, "little")
    chosen = [how >> 4 * i & 15 for i in range(4)]
    return sum(
        (255 * (data[i & 7] >> 7) if i & 8 else data[i & 7]) << 8 * place for place, i in enumerate(chosen)
    )


def _fused(x, y, z):
    """The nearest of floats to ``x y + z``, rounded once."""
    about = np.float32(np.float64(x) * np.float64(y) + z)
    if not np.isfinite(about) or about == 0:
        return about
    exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(z)
    near = [about, np.nextafter(about, np.float32(np.inf)), np.nextafter(about, np.float32(-np.inf))]
    return min(near, key=lambda f: (abs(Fraction(float(f)) - exact), f.view(np.uint32) & 1))


# An instruction of %a and %b (b32) into %d, and what it gives.
INTEGER = {
    "add.s32 %d, %a, %b": lambda a, b: a + b,
    "sub.u32 %d, %a, %b": lambda a, b: a - b,
    "mul.lo.s32 %d, %a, %b": lambda a, b: a * b,
    "mul.hi.u32 %d, %a, %b": lambda a, b: a * b >> 32,
    "mul.hi.s32 %d, %a, %b": lambda a, b: _signed(a) * _signed(b) >> 32,
    "mad.lo.s32 %d, %a, %b, -3": lambda a, b: a * b - 3,
    "div.s32 %d, %a, 7": lambda a, b: _short_by_zero(_signed(a), 7),
    "rem.s32 %d, %a, -7": lambda a, b: int(math.fmod(_signed(a), -7)),
    "div.u32 %d, %a, 10": lambda a, b: a // 10,
    "min.s32 %d, %a, %b": lambda a, b: min(_signed(a), _signed(b)),
    "max.u32 %d, %a, %b": lambda a, b: max(a, b),
    "neg.s32 %d, %a": lambda a, b: -a,
    "abs.s32 %d, %a": lambda a, b: abs(_signed(a)),
    "and.b32 %d, %a, %b": lambda a, b: a & b,
    "xor.b32 %d, %a, %b": lambda a, b: a ^ b,
    "not.b32 %d, %a": lambda a, b: ~a,
    "shl.b32 %d, %a, %b": lambda a, b: a << b if b < 32 else 0,
    "shr.u32 %d, %a, %b": lambda a, b: a >> min(b, 32),
    "shr.s32 %d, %a, %b": lambda a, b: _signed(a) >> min(b, 32),
    "popc.b32 %d, %a": lambda a, b: a.bit_count(),
    "clz.b32 %d, %a": lambda a, b: 32 - a.bit_length(),
    "brev.b32 %d, %a": lambda a, b: int(f"{a:032b}"[::-1], 2),
    "bfind.u32 %d, %a": lambda a, b: a.bit_length() - 1,
    "bfind.s32 %d, %a": lambda a, b: (a if a < 2**31 else ~a & 0xFFFFFFFF).bit_length() - 1,
    "bfind.shiftamt.u32 %d, %a": lambda a, b: 32 - a.bit_length() if a else -1,
    "bfe.u32 %d, %a, %b, 5": lambda a, b: _field(a, b & 255, 5, False),
    "bfe.s32 %d, %a, %b, 5": lambda a, b: _field(a, b & 255, 5, True),
    "bfi.b32 %d, %a, %b, 12, 9": lambda a, b: _into(a, b, 12, 9),
    "bfi.b32 %d, %a, 77, 0, 32": lambda a, b: a,
    "prmt.b32 %d, %a, %b, 0x7A0C": lambda a, b: _permuted(a, b, 0x7A0C),
    "lop3.b32 %d, %a, %b, 0xFF, 0x96": lambda a, b: a ^ b ^ 0xFF,
    "lop3.b32 %d, %a, %b, 0xFF, 0x20": lambda a, b: a & ~b & 0xFF,
    "shf.l.wrap.b32 %d, %a, %b, 40": lambda a, b: (b << 32 | a) << 8 >> 32,
    "shf.r.wrap.b32 %d, %a, %b, 5": lambda a, b: (b << 32 | a) >> 5,
    "cvt.u32.u16 %d, %h": lambda a, b: a & 0xFFFF,
    "cvt.s32.s16 %d, %h": lambda a, b: _signed(a & 0xFFFF, 16),
    "mov.b32 %d, {%h, %h}": lambda a, b: (a & 0xFFFF) * 0x10001,
    "setp.lt.s32 %p, %a, %b; selp.u32 %d, 1, 0, %p": lambda a, b: _signed(a) < _signed(b),
    "setp.hi.u32 %p, %a, %b; selp.u32 %d, 1, 0, %p": lambda a, b: a > b,
    "setp.ne.and.s32 %p|%q, %a, %b, %odd; selp.b32 %d, 5, 3, %q": lambda a, b: 5 if a == b and a & 1 else 3,
    "mul.wide.s32 %w, %a, %b; mov.b64 {%e, %d}, %w": lambda a, b: _signed(a) * _signed(b) >> 32,
    "mul.wide.u32 %w, %a, %b; cvt.u32.u64 %d, %w": lambda a, b: a * b,
    "cvt.s64.s32 %w, %a; shr.s64 %w, %w, 4; cvt.u32.u64 %d, %w": lambda a, b: _signed(a) >> 4,
    "@%odd bra $over; mov.u32 %d, 4; bra.uni $end; $over: mov.u32 %d, %a; $end: mov.u32 %e, 0": lambda a, b: (
        a if a & 1 else 4
    ),
}
FLOATS = [0.0, -0.0, 1.0, -2.5, 3.5, 0.1, 1e30, -1e30, 3e9, -3e9, math.inf, -math.inf, math.nan]
# The same of %x and %y (f32).
FLOAT = {
    "add.rn.ftz.f32 %z, %x, %y": lambda x, y: x + y,
    "mul.rn.f32 %z, %x, %y": lambda x, y: x * y,
    "div.rn.f32 %z, %x, %y": lambda x, y: x / y,
    "fma.rn.f32 %z, %x, %y, 0fBF800000": lambda x, y: _fused(x, y, -1.0),
    "min.ftz.f32 %z, %x, %y": np.fmin,
    "max.ftz.f32 %z, %x, %y": np.fmax,
    "neg.f32 %z, %x": lambda x, y: -x,
    "cvt.rni.f32.f32 %z, %x": lambda x, y: np.rint(x),
    "cvt.rzi.s32.f32 %e, %x; cvt.rn.f32.s32 %z, %e": lambda x, y: np.clip(
        np.nan_to_num(np.trunc(x)), -(2**31), 2**31 - 1
    ),
    "cvt.rmi.u32.f32 %e, %x; cvt.rn.f32.u32 %z, %e": lambda x, y: np.clip(
        np.nan_to_num(np.floor(x)), 0, 2**32 - 1
    ),
    "setp.ne.f32 %p, %x, %y; selp.f32 %z, 0f3F800000, 0f00000000, %p": lambda x, y: x < y or x > y,
    "setp.neu.f32 %p, %x, %y; selp.f32 %z, 0f3F800000, 0f00000000, %p": lambda x, y: x != y,
    "setp.ltu.f32 %p, %x, %y; selp.f32 %z, 0f3F800000, 0f00000000, %p": lambda x, y: not x >= y,
    "setp.nan.f32 %p, %x, %y; selp.f32 %z, 0f3F800000, 0f00000000, %p": lambda x, y: x != x or y != y,
}
HEAD = """
.version 8.0
.target sm_80
.address_size 64
"""
KERNEL = """
.visible .entry each(.param .u64 each_param_0, .param .u64 each_param_1, .param .u64 each_param_2)
{
  .reg .pred %p, %q, %odd;
  .reg .b16 %h, %g;
  .reg .b32 %a, %b, %d, %e, %i, %n<2>;
  .reg .f32 %x, %y, %z;
  .reg .b64 %w, %at, %to, %from<3>;
  mov.u32 %i, %tid.x;
  mul.wide.u32 %at, %i, 4;
  ld.param.u64 %from1, [each_param_0];
  add.s64 %from1, %from1, %at;
  ld.global.u32 %a, [%from1];  ld.global.f32 %x, [%from1];
  ld.param.u64 %from2, [each_param_1];
  add.s64 %from2, %from2, %at;
  ld.global.u32 %b, [%from2+0];  ld.global.f32 %y, [%from2+0];
  mov.b32 {%h, %g}, %a;
  and.b32 %n1, %a, 1;
  setp.eq.s32 %odd, %n1, 1;
  THIS
  ld.param.u64 %to, [each_param_2];
  add.s64 %to, %to, %at;
  st.global.RESULT;
  ret;
}
"""
DECLARED = (
    'extern "C" __global__ void each(const unsigned* a, const unsigned* b, unsigned* to)',
    'extern "C" __global__ void each(const float* a, const float* b, float* to)',
)


def _each(instructions, pairs, is_float):
    """What instructions, one kernel each, give for all pairs of numbers."""
    (declared,) = launch.declarations(DECLARED[is_float]).values()
    dtype = np.float32 if is_float else np.uint32
    device, found = PtxDevice(), []
    pairs = np.array(pairs, dtype).T
    result = "f32 [%to], %z" if is_float else "u32 [%to], %d"
    names = [f"each{i}" for i in range(len(instructions))]
    ptx = HEAD + "".join(
        KERNEL.replace("THIS", f"{text};").replace("RESULT", result).replace("each", name)
        for name, text in zip(names, instructions, strict=True)
    )
    kernels = EmulatedKernels(translated(ptx, dict.fromkeys(names, declared)), device)
    for name in names:
        to = device.zeros(pairs.shape[1], dtype)
        kernels.launch(name, 1, pairs.shape[1], (*map(device.put, pairs), to))
        found.append(device.get(to))
    return found


def test_instructions_on_integers():
    pairs = [(a, b) for a in WORDS for b in WORDS]
    for (text, expected), found in zip(INTEGER.items(), _each(INTEGER, pairs, False), strict=True):
        assert found.tolist() == [int(expected(a, b)) % 2**32 for a, b in pairs], text


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_instructions_on_floats():
    pairs = np.array([(x, y) for x in FLOATS for y in FLOATS], np.float32)
    for (text, expected), found in zip(FLOAT.items(), _each(FLOAT, pairs, True), strict=True):
        wanted = np.array([np.float32(expected(x, y)) for x, y in pairs])
        np.testing.assert_array_equal(found, wanted, err_msg=text)


# --- what it refuses --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bugs():
    device = PtxDevice(folder=HERE)
    return device, device.kernels("ptx_bugs.cu")


def test_four_floats_at_no_multiple_of_sixteen_bytes(bugs):
    device, kernels = bugs
    there, out = device.put(np.arange(64, dtype=np.float32)), device.zeros(32, np.float32)
    kernels.launch("four_at_a_time", 1, 32, (there, out, np.int32(4)))
    assert (device.get(out) == 4 + 7).all()
    with pytest.raises(DeviceError, match=r"address .* is no multiple of 16"):
        kernels.launch("four_at_a_time", 1, 32, (there, out, np.int32(1)))


def test_what_a_kernel_writes_is_not_read_through_the_read_only_cache(bugs):
    device, kernels = bugs
    there, out = device.zeros(32, np.float32), device.zeros(32, np.float32)
    kernels.launch("through_the_cache", 1, 32, (there, out))
    with pytest.raises(DeviceError, match=r"through_the_cache: the read-only cache .* itself writes"):
        kernels.launch("through_the_cache", 1, 32, (there, there))
    kernels.launch("through_the_cache", 1, 32, (there, out))  # a launch is by itself


def test_shared_memory_beside_its_variables(bugs):
    device, kernels = bugs
    out = device.put(np.arange(32, dtype=np.float32))
    kernels.launch("beyond_shared", 1, 32, (out, np.int32(0)))
    assert device.get(out).tolist() == list(range(31, -1, -1))
    with pytest.raises(DeviceError, match="no variable of shared memory lies at"):
        kernels.launch("beyond_shared", 1, 32, (out, np.int32(1)))


def test_products_that_may_be_fused(monkeypatch):
    monkeypatch.setattr(cuda_compilers, "OPTIONS", ("--std=c++17",))
    with pytest.raises(DeviceError, match=r"(add|mul).* may fuse that \(-fmad=false is missing\)"):
        PtxDevice(folder=HERE).kernels("intrinsics.cu")


def test_an_instruction_that_it_does_not_know():
    kernel = KERNEL.replace("RESULT", "u32 [%to], %d").replace("THIS", "ex2.approx.ftz.f32 %z, %x;")
    with pytest.raises(DeviceError, match=r"does not know line 20 of the PTX: ex2.approx.ftz.f32 %z, %x"):
        translated(kernel, launch.declarations(DECLARED[0]))


# --- the kernels ------------------------------------------------------------------------------------------


def test_the_models_are_those_of_the_cpu():
    """A few sweeps and new documents; of both samplers, and more of them, where slow tests run."""
    X = make_lda_corpus(30, n_features=80, n_components=4, mean_length=30, random_state=0)[0]
    here, there = (
        sd.LatentDirichletAllocation(40, sampler="saber", device=device, max_iter=3, random_state=0)
        for device in ("cpu", "cuda")
    )
    here.fit(X)
    with standing_in(PtxDevice(seed=2)) as device:
        there.fit(X)
        shares = there.transform(X[:3], n_sweeps=10)
    assert {"sample", "fold_in"} < set(device.launches)
    assert (there.word_topic_counts_ != here.word_topic_counts_).nnz == 0
    assert (there.doc_topic_counts_ != here.doc_topic_counts_).nnz == 0
    np.testing.assert_allclose(there.log_likelihood_, here.log_likelihood_, rtol=1e-10)
    np.testing.assert_allclose(shares, here.transform(X[:3], n_sweeps=10), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["saber", "light"])
@pytest.mark.parametrize("which", ["address", "thread"])
def test_a_sanitizer_finds_nothing(which, sampler):
    script = """
import sys
from ptx_on_cpu import PtxDevice
from test_ptx import bits
print(bits(sys.argv[1], PtxDevice(sanitize=sys.argv[2], seed=2)), file=sys.stderr)
"""
    said = sanitized(which, script, sampler, which)
    if said is None:
        pytest.skip(f"the compiler has no {which} sanitizer")
    assert said.strip() == str(bits(sampler, PtxDevice(seed=1)))


def bits(sampler, device):
    """Fit on a device, and give a number that hangs on every count."""
    X, *_ = make_lda_corpus(20, n_features=60, n_components=4, mean_length=20, random_state=0)
    lda = sd.LatentDirichletAllocation(40, sampler=sampler, device="cuda", max_iter=2, random_state=0)
    with standing_in(device):
        counts = lda.fit(X).word_topic_counts_.toarray()
    return zlib.crc32(counts.astype("<i4").tobytes())
