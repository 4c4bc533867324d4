"""An instruction of PTX as a statement of C++: `ptx_on_cpu.h` has the functions that are called."""

import re

from stradask.errors import DeviceError

TYPES = {f"{kind}{bits}": f"uint{bits}_t" for kind in "bu" for bits in (8, 16, 32, 64)}
TYPES |= {f"s{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)}
TYPES |= {"f32": "float", "f64": "double", "pred": "bool"}

_INDEX = {"tid": "threadIdx", "ntid": "blockDim", "ctaid": "blockIdx", "nctaid": "gridDim"}
_SPECIAL = {f"%{name}.{axis}": f"uint32_t({of}.{axis})" for name, of in _INDEX.items() for axis in "xyz"}
_SPECIAL |= {"%laneid": "ptx::lane()", "WARP_SZ": "32"}
_ATOMIC_TYPES = {
    "s32": "int", "u32": "unsigned", "b32": "unsigned", "s64": "long long", "u64": "unsigned long long",
    "b64": "unsigned long long", "b16": "unsigned short", "f32": "float", "f64": "double",
}  # fmt: skip
_ATOMICS = {
    name.lower(): f"atomic{name}" for name in ("Add", "Min", "Max", "And", "Or", "Xor", "Exch", "CAS")
}
_ATOMICS |= {"inc": "atomicInc", "dec": "atomicDec"}

_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|[^,\s][^,]*")
_NUMBER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|\d+)U?")
_ADDRESS = re.compile(r"\[\s*([%$\w]+)\s*(?:\+\s*(-?\d+))?\s*\]")
_FUSED = re.compile(r"(?:add|sub|mul)(?:\.ftz)?\.f(?:32|64)")
_MEMORY = re.compile(
    r"(?P<op>ld|st)(?:\.(?:volatile|weak|relaxed|acquire|release|gpu|cta|sys))*"
    r"(?:\.(?P<space>global|shared|local|param|const))?(?P<nc>\.nc)?(?:\.(?:ca|cg|cs|lu|cv|wb|wt)|\.L[12]::\w+)*"
    r"(?:\.v(?P<n>[24]))?\.(?P<type>\w+)"
)
_ATOM = re.compile(
    r"(?P<op>atom|red)(?:\.(?:relaxed|acquire|release|acq_rel|gpu|cta|sys))*(?:\.(?P<space>global|shared))?"
    r"\.(?P<what>\w+)\.(?P<type>\w+)"
)
_COMPARE = re.compile(r"setp\.(?P<how>\w+?)(?:\.(?P<with>and|or|xor))?(?:\.ftz)?\.(?P<type>[busf]\d+)")
_CONVERT = re.compile(r"cvt(?:\.(?P<round>r[nzmp]i?))?(?:\.ftz)?\.(?P<to>[busf]\d+)\.(?P<type>[busf]\d+)")
_ROUNDING = {"rni": "kNearest", "rzi": "kZero", "rmi": "kDown", "rpi": "kUp"}
_SHUFFLE = re.compile(r"shfl\.sync\.(?P<how>idx|up|down|bfly)\.b32")
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
# Opcodes that are a function of what they read: its name, and the types of that. T is the opcode's own, W one
# of twice its bits. Sums and products of floats have .rn: without it the assembler may fuse the two.
_FUNCTIONS = [
    (re.compile(pattern + r"\.(?P<type>\w+)"), name, types.split())
    for pattern, name, types in (
        (r"(add|sub|mul|div)\.rn(?:\.ftz)?(?=\.f)", None, "T T"),
        (r"(rcp|sqrt)\.rn(?:\.ftz)?(?=\.f)", None, "T"),
        (r"(fma)\.rn(?:\.ftz)?(?=\.f)", None, "T T T"),
        (r"rcp\.approx\.ftz(?=\.f64)", "rcp_approx", "T"),
        (r"(min|max)(?:\.ftz)?", None, "T T"),
        (r"(neg|abs)(?:\.ftz)?", None, "T"),
        (r"(add|sub|div|rem)(?=\.[us])", None, "T T"),
        (r"mul\.lo", "mul_lo", "T T"),
        (r"mul\.hi", "mul_hi", "T T"),
        (r"mul\.wide", "mul_wide", "T T"),
        (r"mad\.lo", "mad_lo", "T T T"),
        (r"mad\.hi", "mad_hi", "T T T"),
        (r"mad\.wide", "mad_wide", "T T W"),
        (r"(and|or|xor)", None, "T T"),
        (r"(not)", None, "T"),
        (r"(shl|shr)", None, "T u32"),
        (r"(popc|clz|brev|bfind)", None, "T"),
        (r"bfind\.shiftamt", "bfind_shiftamt", "T"),
        (r"(bfe)", None, "T u32 u32"),
        (r"(bfi)", None, "T T u32 u32"),
        (r"(prmt)", None, "T T T"),
        (r"(lop3)", None, "T T T u32"),
        (r"shf\.l\.wrap", "shf_l_wrap", "T T u32"),
        (r"shf\.r\.wrap", "shf_r_wrap", "T T u32"),
        (r"(selp)", None, "T T pred"),
    )
]


def register(name):
    """Give the C++ name of a register."""
    return name.replace("%", "v_")


def label(name):
    """Give the C++ name of a label."""
    return name.replace("$", "l_")


class Instructions:
    """The instructions of one function.

    Parameters
    ----------
    space_of : callable
        Of the name of a variable, the state space it lies in.
    """

    def __init__(self, space_of):
        self._space_of, self._line = space_of, 0

    def written(self, text, line):
        """Write an instruction, without its guard, as C++."""
        opcode, _, rest = text.partition(" ")
        operands = [operand.strip() for operand in _OPERAND.findall(rest)]
        self._line = line
        if _FUSED.fullmatch(opcode):
            raise DeviceError(
                f"line {line} of the PTX, {text}: the assembler may fuse that (-fmad=false is missing)"
            )
        found = self._of_one_form(opcode, operands) or self._of_many_types(opcode, operands)
        if found is None:
            raise DeviceError(f"ptx_instructions.py does not know line {line} of the PTX: {text}")
        return found

    # Operands ---------------------------------------------------------------------------------------------

    def _value(self, text, kind):
        """What an operand is, read as a type."""
        if text.startswith("!"):
            return f"!{self._value(text[1:], kind)}"
        return f"ptx::as<{TYPES[kind]}>({self._raw(text)})"

    def _raw(self, text):
        if text in _SPECIAL:
            return _SPECIAL[text]
        if text.startswith("%"):
            return register(text)
        if text[:2] in ("0f", "0d"):
            return f"uint{32 if text[1] == 'f' else 64}_t(0x{text[2:]}u)"
        if _NUMBER.fullmatch(text):
            return f"uint64_t(0x{int(text.rstrip('U'), 0) % 2**64:x}u)"
        name, _, plus = text.partition("+")
        space = self._space_of(name)
        if space == "shared":
            return f"uint32_t({'0u' if name == 'smem' else f'ptx::offset({name})'} + {plus or 0})"
        if space in ("global", "const", "local"):
            return f"(uint64_t({name}) + {plus or 0})"
        raise DeviceError(f"line {self._line} of the PTX has the operand {text}")

    def _place(self, text, space, size):
        """The pointer that an operand in brackets is."""
        found = _ADDRESS.fullmatch(text)
        if not found:
            raise DeviceError(f"line {self._line} of the PTX has the address {text}")
        name, plus = found[1], found[2] or 0
        if space == "param":
            return f"({name} + {plus})"
        if space == "shared":
            return f"in_shared(uint32_t({self._raw(name)}) + {plus}, {size}, {self._line})"
        return f"(ptx::host({self._raw(name)}) + {plus})"

    # Instructions of one form -----------------------------------------------------------------------------

    def _of_one_form(self, opcode, operands):
        parts = opcode.split(".")
        if opcode in ("ret", "ret.uni", "exit"):
            return "return;"
        if parts[0] == "bra":
            return f"goto {label(operands[0])};"
        if parts[0] == "mov":
            return self._move(int(parts[1][1:]) if parts[1] != "pred" else 1, parts[1], *operands)
        if parts[0] == "cvta":
            return self._generic(opcode, *operands)
        if parts[0] == "call":
            returned, name, given = operands if operands[0].startswith("(") else ("()", *operands)
            return f"{name}({', '.join(_OPERAND.findall(returned[1:-1]) + _OPERAND.findall(given[1:-1]))});"
        if parts[0] in ("membar", "fence"):
            return "__threadfence();"
        if parts[0] == "nanosleep":
            return f"emu::yield({self._line});"
        return self._together(parts, operands)

    def _generic(self, opcode, to, source):
        """Shared addresses are counted from the dynamic part; all others are the CPU's."""
        at = self._raw(source)
        if opcode == "cvta.to.shared.u64":
            at = f"uint64_t(ptx::offset(ptx::host({at})))"
        elif opcode == "cvta.shared.u64":
            at = f"uint64_t(ptx::dynamic() + int32_t({at}))"
        return f"{register(to)} = {at};"

    def _move(self, bits, kind, to, source):
        """Move, or take apart and put together."""
        if to.startswith("{"):
            parts = self._listed(to)
            part = bits // len(parts)
            sets = [self._set(p, f"uint{part}_t(whole >> {part * i})") for i, p in enumerate(parts)]
            return f"{{ const auto whole = {self._value(source, kind)}; {' '.join(sets)} }}"
        if source.startswith("{"):
            parts = self._listed(source)
            part = bits // len(parts)
            terms = [f"uint{bits}_t({self._value(p, f'u{part}')}) << {part * i}" for i, p in enumerate(parts)]
            return self._set(to, f"uint{bits}_t({' | '.join(terms)})")
        return self._set(to, self._value(source, kind))

    def _together(self, parts, operands):
        """Instructions for which lanes wait, but for shuffles."""
        if parts in (["bar", "sync"], ["barrier", "sync"], ["barrier", "sync", "aligned"]) and operands == [
            "0"
        ]:
            return f'emu::collective(emu::kBlock, 3, 0, 0, 0, "bar.sync", {self._line});'
        if parts[:2] == ["bar", "red"] and operands[1] == "0":
            how, p = ("popc", "and", "or").index(parts[2]), self._value(operands[2], "pred")
            call = f'emu::collective(emu::kBlock, {how}, 0, {p}, 0, "bar.red", {self._line})'
            return f"{register(operands[0])} = {call};"
        if parts == ["bar", "warp", "sync"]:
            return f"__syncwarp({self._value(operands[0], 'u32')}, {self._line});"
        if parts[0] == "activemask":
            return self._set(operands[0], f"__activemask({self._line})")
        if parts[0] not in ("vote", "match", "redux"):
            return None
        to, _, same = operands[0].partition("|")
        kind = "pred" if parts[0] == "vote" else parts[-1]
        given = f"{self._value(operands[1], kind)}, {self._value(operands[2], 'u32')}, {self._line}"
        if parts[0] == "match" and parts[1] == "all":
            rest = f"{register(same)} = same;" if same else ""
            return f"{{ int same; {self._set(to, f'ptx::match_all({given}, same)')} {rest} }}"
        name = parts[2] if parts[0] == "vote" else "match_any" if parts[0] == "match" else f"redux_{parts[2]}"
        return self._set(to, f"ptx::{name}({given})")

    # Instructions of many types ---------------------------------------------------------------------------

    def _of_many_types(self, opcode, operands):
        for pattern, write in (
            (_MEMORY, self._memory),
            (_ATOM, self._atomic),
            (_COMPARE, self._compare),
            (_CONVERT, self._convert),
            (_SHUFFLE, self._shuffle),
        ):
            found = pattern.fullmatch(opcode)
            if found:
                return write(found, operands)
        for pattern, name, kinds in _FUNCTIONS:
            found = pattern.fullmatch(opcode)
            if found and len(operands) == len(kinds) + 1:
                own = found["type"]
                each = [
                    {"T": own, "W": f"{own[0]}{2 * int(own[1:])}" if "W" in kinds else ""}.get(k, k)
                    for k in kinds
                ]
                given = ", ".join(map(self._value, operands[1:], each))
                return self._set(operands[0], f"ptx::{name or found[1]}_({given})")
        return None

    def _memory(self, found, operands):
        kind, n, space = TYPES[found["type"]], int(found["n"] or 1), found["space"]
        place, held = operands if found["op"] == "st" else operands[::-1]
        held, how = self._listed(held), "at"
        if space in (None, "global") and (found["nc"] or found["op"] == "st"):
            how = "read_only" if found["nc"] else "written"
        at = self._place(place, space, f"{n} * sizeof({kind})")
        if found["op"] == "st":
            moves = [f"m[{i}] = {self._value(name, found['type'])};" for i, name in enumerate(held)]
        else:
            moves = [self._set(name, f"m[{i}]") for i, name in enumerate(held)]
        return f"{{ auto* const m = ptx::{how}<{kind}, {n}>({at}, {self._line}); {' '.join(moves)} }}"

    def _atomic(self, found, operands):
        kind, to = _ATOMIC_TYPES[found["type"]], operands.pop(0) if found["op"] == "atom" else "_"
        how = "at" if found["space"] == "shared" else "written"
        place = self._place(operands[0], found["space"], f"sizeof({kind})")
        given = ", ".join(f"ptx::as<{kind}>({self._raw(operand)})" for operand in operands[1:])
        call = f"{_ATOMICS[found['what']]}(ptx::{how}<{kind}, 1>({place}, {self._line}), {given})"
        return f"{call};" if to == "_" else self._set(to, call)

    def _compare(self, found, operands):
        kind, how = found["type"], _UNSIGNED.get(found["how"], found["how"])
        if how == "ne" and kind[0] != "f":
            how = "neu"
        one, other = (self._value(operand, kind) for operand in operands[1:3])
        more = ""
        if found["with"]:
            sign = {"and": "&", "or": "|", "xor": "^"}[found["with"]]
            more = f" {sign} {self._value(operands[3], 'pred')}"
        names = operands[0].split("|")
        sets = [f"{register(name)} = {no}holds{more};" for name, no in zip(names, ("", "!"), strict=False)]
        return f"{{ const bool holds = ptx::cmp_{how}({one}, {other}); {' '.join(sets)} }}"

    def _convert(self, found, operands):
        to, source, how = found["to"], found["type"], found["round"]
        to_integer = source[0] == "f" and (to[0] != "f" or to == source)  # which may stay a float
        if to_integer != (how in _ROUNDING) or not (to_integer or how in (None, "rn")):
            return None
        kinds = f"{TYPES[to]}, {TYPES[source]}, ptx::{_ROUNDING.get(how, 'kNone')}"
        return self._set(operands[0], f"ptx::cvt<{kinds}>({self._value(operands[1], source)})")

    def _shuffle(self, found, operands):
        to, _, inside = operands[0].partition("|")
        how = ("idx", "up", "down", "bfly").index(found["how"])
        given = ", ".join(self._value(operand, "u32") for operand in operands[1:])
        call = f"ptx::shfl({register(to)}, {how}, {given}, {self._line});"
        return f"{register(inside)} = {call}" if inside else call

    def _set(self, to, value):
        return f"ptx::set({register(to)}, {value});"

    def _listed(self, text):
        return [part.strip() for part in _OPERAND.findall(text[1:-1])] if text.startswith("{") else [text]
