"""What NVIDIA's compiler makes of a kernel, run on the CPU: PTX, written as C++ for the emulator.

    with standing_in(PtxDevice(seed=3)):
        estimator.fit(X)  # device="cuda" runs what NVRTC made of the sources

The emulator runs the text of a kernel as a C++ compiler reads it; this runs it as NVRTC has read, inlined and
reordered it, up to the last step, at which an assembler makes the code of one GPU. Each instruction becomes a
statement (`ptx_instructions.py`, and `ptx_on_cpu.h` for what they do); lanes wait for each other as in the
emulator. Beyond what that sees, a launch ends with a message where

- an address is no multiple of the bytes that are read or written there, as of four floats at once;
- shared memory is read or written outside of its variables;
- the read-only cache (``ld.global.nc``, of a ``const __restrict__`` array) holds what the kernel writes;

and a source is refused where it has sums and products that the assembler could fuse, or whatever is not here.
"""

import ctypes
import re
import threading
from typing import NamedTuple

from cuda_compilers import nvrtc_file, ptx_by_nvrtc
from cuda_emulator import MISSING, EmulatedDevice, EmulatedKernels
from ptx_instructions import TYPES, Instructions, label, register

from stradask.errors import DeviceError
from stradask.kernels.cuda import launch

WITHOUT = MISSING or (None if nvrtc_file() else "NVRTC is not there (the wheel nvidia-cuda-nvrtc has it)")

_REGISTERS = {name: f"uint{name[1:]}_t" for name in TYPES if name != "pred"} | {"pred": "bool"}
_DECLARED = {
    "b1": "bool", "i1": "signed char", "u1": "unsigned char", "i2": "short", "u2": "unsigned short",
    "i4": "int", "u4": "unsigned", "i8": "long long", "u8": "unsigned long long", "f4": "float",
    "f8": "double",
}  # fmt: skip
_FUNCTION = re.compile(
    r"\.(?P<kind>entry|func)\s+(?:\((?P<returned>[^)]*)\)\s*)?(?P<name>[\w$]+)\s*(?:\((?P<parameters>[^)]*)\))?"
    r"[^{};]*(?P<end>[{;])"
)
_VARIABLE = re.compile(
    r"(?P<extern>\.extern )?(?:\.visible |\.weak )?\.(?P<space>global|const|shared|local|param)"
    r"(?: \.align (?P<align>\d+))? \.(?P<type>\w+) (?P<name>[\w$]+)"
    r"(?:\[(?P<size>\d*)\])?(?: = (?P<value>.*))?"
)
_REGISTER = re.compile(r"\.reg \.(?P<type>\w+) (?P<names>.*)")
_GUARD = re.compile(r"@(?P<not>!?)(?P<name>%\w+) (?P<rest>.*)")
_STATEMENT = re.compile(r"(?P<brace>[{}])|(?P<label>[$\w]+):|(?P<text>[^;]*);")


class PtxDevice(EmulatedDevice):
    """The emulated GPU, which runs what NVRTC makes of a source.

    Parameters
    ----------
    architecture : int
        Compute capability, as 90.
    **options
        Of `EmulatedDevice`.
    """

    def __init__(self, *, architecture=90, flags=(), **options):
        # AddressSanitizer follows the scopes of thousands of variables for half an hour.
        super().__init__(flags=(*flags, "-fno-sanitize-address-use-after-scope"), **options)
        self.architecture = architecture

    def built(self, file, text):
        return PtxKernels(text, self)


class PtxKernels(EmulatedKernels):
    """The kernels of one source, compiled by NVRTC and then for the CPU."""

    _whole = threading.Lock()  # what a launch has touched is noted in its library

    def __init__(self, text, device):
        ptx = ptx_by_nvrtc(text, device.architecture)
        super().__init__(translated(ptx, launch.declarations(text)), device)
        self._library.ptx_trouble.restype = ctypes.c_char_p

    def _run(self, name, index, grid, block, arguments, shared):
        with self._whole:
            self._library.ptx_begin(ctypes.c_uint(shared))
            super()._run(name, index, grid, block, arguments, shared)
            trouble = self._library.ptx_trouble().decode()
        if trouble:
            raise DeviceError(f"{name}: {trouble}")


class _Variable(NamedTuple):
    """A variable of PTX: where it lies, and its declaration in C++."""

    name: str
    space: str
    is_extern: bool
    declared: str


def translated(ptx, declared):
    """Write PTX as C++.

    Parameters
    ----------
    ptx : str
    declared : dict of str to tuple of stradask.kernels.cuda.launch.Parameter
        The kernels of the source.

    Returns
    -------
    str
    """
    ptx = re.sub(r"//[^\n]*|/\*.*?\*/", lambda found: "\n" * found[0].count("\n"), ptx, flags=re.DOTALL)
    ptx = re.sub(r"^\.(version|target|address_size)\b.*", "", ptx, flags=re.MULTILINE)
    variables, heads, functions = {}, [], []
    end = 0
    for found in _FUNCTION.finditer(ptx):
        for statement in ptx[end : found.start()].split(";"):
            _outside(statement, variables)
        end = found.end() if found["end"] == ";" else _closing(ptx, found.end())
        head, begin, names = _head(found, declared)
        heads.append(f"{head};")
        if found["end"] == "{":
            body = _Body(ptx[found.end() : end - 1], ptx.count("\n", 0, found.end()) + 1, names, variables)
            functions.append("\n".join([f"{head} {{", *begin, *body.lines, "}"]))
    lines = ['#include "ptx_on_cpu.h"', *(variable.declared for variable in variables.values())]
    return "\n".join([*lines, *_bounds(variables), *heads, *functions]) + "\n"


def _outside(statement, variables):
    """Place a variable that is declared outside of functions; of the rest nothing is needed."""
    found = _VARIABLE.fullmatch(" ".join(statement.split()))
    if found:
        _place(found, variables)


def _place(found, variables):
    space, name, values = found["space"], found["name"], found["value"]
    if found["extern"] and (space, name) != ("shared", "smem"):
        raise DeviceError(f"PTX with a variable of elsewhere: {found[0]}")
    if values and found["type"] not in ("b8", "u8"):
        raise DeviceError(f"PTX with a table that is not of bytes: {found[0]}")
    where = "static thread_local" if space == "shared" else "static"
    size = f"[{found['size'] or 1}]{f' = {values}' if values else ''}"
    text = f"{where} __attribute__((aligned({found['align'] or 8}))) {TYPES[found['type']]} {name}{size};"
    variables[name] = _Variable(name, space, bool(found["extern"]), "" if found["extern"] else text)


def _bounds(variables):
    """The function that makes an address of shared memory one of the CPU."""
    held = [v.name for v in variables.values() if v.space == "shared" and not v.is_extern]
    tests = ["!ptx::is_dynamic(p, n)"]
    tests += [f"!(p >= (char*){name} && p + n <= (char*){name} + sizeof {name})" for name in held]
    return [
        "inline char* in_shared(uint32_t address, size_t n, int line) {",
        "  char* const p = ptx::dynamic() + int32_t(address);",
        f"  if ({' && '.join(tests)}) ptx::outside(address, line);",
        "  return p;",
        "}",
    ]


def _head(found, declared):
    """How a function is declared, what it begins with, and the names of its parameters."""
    name, names, returned = found["name"], _names(found["parameters"]), _names(found["returned"])
    if found["kind"] == "entry":
        given, parameters = declared[name], []
        for p in given:
            kind = _DECLARED[p.dtype.kind + str(p.dtype.itemsize)]
            parameters.append(f"{'const ' * p.is_const}{kind}{'*' * p.is_array} {p.name}")
        pairs = zip(names, given, strict=True)
        begin = [f"const unsigned char* const {at} = (const unsigned char*)&{p.name};" for at, p in pairs]
        return f'extern "C" __global__ void {name}({", ".join(parameters)})', begin, names
    parameters = [f"unsigned char* {at}" for at in returned] + [f"const unsigned char* {at}" for at in names]
    return f"static __attribute__((noinline)) void {name}({', '.join(parameters)})", [], returned + names


def _names(parameters):
    return [part.split()[-1].split("[")[0] for part in (parameters or "").split(",") if part.strip()]


def _closing(text, place):
    """Where the brace closes that was opened before a place."""
    depth = 1
    while depth:
        found = re.compile(r"[{}]").search(text, place)
        depth += 1 if found[0] == "{" else -1
        place = found.end()
    return place


class _Body:
    """The lines of C++ of a function."""

    def __init__(self, text, line, parameters, variables):
        self._variables, self.lines = variables, []
        self._spaces = dict.fromkeys(parameters, "param")
        self._instructions = Instructions(self._space_of)
        text = text.rstrip()
        place = len(text) - len(text.lstrip())
        line += text.count("\n", 0, place)
        while place < len(text):
            found = _STATEMENT.match(text, place)
            self.lines.append(self._statement(found, line))
            following = text[found.end() :].lstrip()
            line += text.count("\n", place, len(text) - len(following))
            place = len(text) - len(following)

    def _space_of(self, name):
        if name in self._spaces:
            return self._spaces[name]
        return self._variables[name].space if name in self._variables else None

    def _statement(self, found, line):
        if found["brace"]:
            return found["brace"]
        if found["label"]:
            return f"{label(found['label'])}:;"
        text = " ".join(found["text"].split())
        if text.startswith(".reg"):
            return self._registers(_REGISTER.fullmatch(text))
        if text.startswith((".shared", ".local", ".param")):
            return self._variable(_VARIABLE.fullmatch(text))
        if text.startswith(".pragma"):
            return ""
        guard = _GUARD.fullmatch(text)
        if guard:
            rest = self._instructions.written(guard["rest"], line)
            return f"if ({guard['not']}{register(guard['name'])}) {{ {rest} }}"
        return self._instructions.written(text, line)

    def _registers(self, found):
        names = []
        for name in found["names"].split(","):
            many = re.fullmatch(r"\s*([%\w]+)<(\d+)>\s*", name)
            names += [f"{many[1]}{i}" for i in range(int(many[2]))] if many else [name.strip()]
        return f"{_REGISTERS[found['type']]} {', '.join(map(register, names))};"

    def _variable(self, found):
        if found["space"] == "shared":
            _place(found, self._variables)
            return ""
        self._spaces[found["name"]] = found["space"]
        size = f"{found['size'] or 1} * sizeof({TYPES[found['type']]})"
        return f"unsigned char {found['name']}[{size}] __attribute__((aligned(16)));"
