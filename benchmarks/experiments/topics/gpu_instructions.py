"""Warp instructions that a token of ``sampler="saber"`` takes on a GPU, counted in machine code without one.

    python -m stradask.benchmarks.experiments.topics.gpu_instructions --topics 1000 10000

`sample` of ``lda/saber.cu`` is compiled by nvcc for one architecture, with the line that each instruction
comes from, and read back by nvdisasm (both are in the CUDA toolkit; ``pip install nvidia-cuda-nvdisasm`` has
the latter). How often a token passes each line is computed from the counts of a fit on the CPU, of documents
as long as those of NYTimes: how many tokens share a document's sums, how many lines of 32 topics a list has,
how often the document's part is drawn from, or the token's own topic, and how many draws are rejected. The
code between two jumps counts as often as the line to which most of it belongs. What a block of threads does
once an item, a few instructions a token, is left out, and so is code for warps whose lanes have gone apart.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ....errors import StradaskError
from ....kernels.cuda import launch
from ...gpu_fits import corpus

FILE = "lda/saber.cu"
# From which line of `sample` on, how often: a name of `frequencies`.
KERNEL = [
    ('extern "C" __global__ void __launch_bounds__(256, BLOCKS)', "items"),
    ("const int m = min(each, end - first);", "groups"),
    ("for (int j = 0; j < m; ++j, changes >>= 1) {", "tokens"),
    ("d.entries = entries + ", "runs"),
    ("const int o = token.topic;", "tokens"),
    ("for (int attempt = 0;; u = unit_float(hash32(more))) {", "again"),
    ("float x = u * all, count = 0.f;", "draws"),
    ("const unsigned entry = draw_document(d, x, g);", "of_document"),
    ("const float y = attempt ?", "of_others"),
    ("x = y * __shfl_sync(FULL, list_prefix, 31);", "of_list"),
    ("topic = draw_tree(", "of_tree"),
    ("if (topic != o) break;", "draws"),
    ("for (int i = 0; i < d.lines && count == 0.f; ++i) {", "own"),
    ("const unsigned entry = d.entries[i * 32 + lane];", "sought"),
    ("const float left = ((count - 1.f) + token.alpha)", "own"),
    ("if (attempt) v = unit_float(hash32(more ^ THIRD));", "own_again"),
    ("if (v * ((count + token.alpha)", "own"),
    ("more = __shfl_sync(FULL, r.w, j) + ++attempt * GOLDEN;", "again"),
    ("if (attempt == TRIES) {", "never"),
    ("if (lane == j) drawn = topic;", "tokens"),
    ("if (lane < m) {\n        topics[first + lane]", "groups"),
    ("// Set the cursor of each document", "items"),
]
# Lines of functions that are passed more or less often than the function is called: for each call, so often.
WITHIN = [
    ("for (int i = first; i < lines; ++i, entry += 32) sum +=", 1, "lines_beyond"),
    ("  for (int i = HELD; i < d.lines && x >= 0.f", 4, "walks_beyond"),
    ("  x = __shfl_sync(FULL, x, lane);\n  const unsigned* entry", 2, "lists_beyond"),
    ("  if (inside == 0u) lane =", 1, "never"),
]
LINE = re.compile(r'//## File "([^"]*)", line (\d+)( inlined at)?')
LABEL = re.compile(r"(\.L_\w+):")
CODE = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;")
JUMP = re.compile(r"\b(BRA|BRX|EXIT|RET|CALL)\b")


class Instruction(NamedTuple):
    """What nvdisasm writes of an instruction, and the lines it comes from, the innermost first."""

    text: str
    lines: tuple


def main(arguments=None):
    """Count, and print a table for each number of topics."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--topics", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument(
        "--tokens", type=float, default=1e5, help="of the corpus that is fitted (default: 1e5)"
    )
    parser.add_argument("--sweeps", type=int, default=25)
    parser.add_argument("--architecture", default="sm_90")
    args = parser.parse_args(arguments)
    text = launch.source(FILE, IN_SHARED=1)
    blocks = blocks_of(disassembled(text, args.architecture))
    X = corpus(args.tokens, 20_000)
    for n_topics in args.topics:
        often = frequencies(X, n_topics, args.sweeps)
        print(f"\n{n_topics:,} topics, {args.architecture}: " + table(count(blocks, often), often))
    return 0


def disassembled(text, architecture):
    """Compile a source, and give the text that nvdisasm makes of `sample`."""
    programs = {name: shutil.which(name) or "" for name in ("nvcc", "nvdisasm")}
    for name, program in programs.items():
        if not program:
            raise StradaskError(f"{name} is not on the PATH: it is in the CUDA toolkit")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "source.cu").write_text(text, encoding="utf-8")
        options = [*launch.OPTIONS, "-ftz=true", "-lineinfo", f"-arch={architecture}", "-cubin"]
        compile_ = [programs["nvcc"], *options, f"-o={folder}/cubin", f"{folder}/source.cu"]
        read = [programs["nvdisasm"], "-c", "-gi", f"{folder}/cubin"]
        for command in (compile_, read):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise StradaskError(f"{Path(command[0]).name} failed: {done.stderr.strip()[:500]}")
    parts = re.split(r"^\s*\.section\s+\.text\.", done.stdout, flags=re.MULTILINE)
    (found,) = (part for part in parts if part.startswith("sample,"))
    return found


def blocks_of(text):
    """Cut the text of a kernel into runs of instructions that are passed as a whole."""
    blocks: list[list] = [[]]
    lines: list[int] = []
    labels, fresh = {}, False
    for line in text.splitlines():
        place, label, code = LINE.search(line), LABEL.match(line.strip()), CODE.search(line)
        if place:
            lines = [*(lines if fresh else []), int(place[2]) if place[1].endswith(FILE) else 0]
            fresh = bool(place[3])
        elif label:
            blocks += [[]] if blocks[-1] else []
            labels[label[1]] = len(blocks) - 1
        elif code:
            fresh = False
            blocks[-1].append(Instruction(code[1], tuple(lines)))
            blocks += [[]] if JUMP.search(code[1]) else []
    return [blocks[i] for i in sorted(_reached(blocks, labels))]


def _reached(blocks, labels):
    """Which blocks a warp gets to that has all of its lanes together."""
    reached, coming = set(), [0]
    while coming:
        i = coming.pop()
        if i in reached or i >= len(blocks) or not blocks[i]:
            continue
        reached.add(i)
        last = blocks[i][-1].text
        targets = [] if "BRA.DIV" in last else re.findall(r"`\((\.L_\w+)\)", last)
        if JUMP.search(last):
            coming += [labels[target] for target in targets if target in labels]
        if not JUMP.search(last) or last.startswith("@") or "DIV" in last or "CALL" in last:
            coming.append(i + 1)
    return reached


def count(blocks, often):
    """Instructions by the name of how often they are passed, and what a token takes of them."""
    source = (launch.FOLDER / FILE).read_text("utf-8")
    marks = [(line_of(source, anchor), name) for anchor, name in KERNEL]
    within = [(line_of(source, anchor), n, name) for anchor, n, name in WITHIN]
    static: Counter = Counter()
    taken: Counter = Counter()
    for block in blocks:
        names = Counter(_name(instruction, marks, within) for instruction in block)
        name = names.most_common(1)[0][0]
        static[name] += len(block)
        taken[name] += len(block) * np.prod([often[part] for part in name])
    return static, taken


def line_of(source, anchor):
    """Number of the line where a text begins, of which there must be one."""
    if source.count(anchor) != 1:
        raise StradaskError(f"{FILE} has {source.count(anchor)} places {anchor!r}, and the count needs one")
    return source[: source.index(anchor)].count("\n") + 1 + anchor.startswith("\n")


def _name(instruction, marks, within):
    """How often an instruction is passed, as names to be multiplied."""
    outer = instruction.lines[-1] if instruction.lines else 0
    kernel = [name for line, name in marks if line <= outer]
    inner = [name for at in instruction.lines for line, n, name in within if line <= at < line + n]
    return (kernel[-1] if kernel else "items", *inner)


def priors(X, n_topics):
    """Those of the fit."""
    return np.full(n_topics, min(50 / n_topics, 0.1)), np.full(X.shape[1], 0.01)


def frequencies(X, n_topics, n_sweeps, n_sample=5000):
    """How often a token passes what, by the counts after some sweeps."""
    from ....algorithms.topics.samplers.saber import SaberState, topic_weights
    from ....scheduler.engine import run

    alpha, beta = priors(X, n_topics)
    state = SaberState(X.tocsr(), n_topics, alpha, beta, 1, n_groups=2)
    run(state, state.schedule, max_rounds=n_sweeps)
    alpha, inverse, base, lift = topic_weights(alpha, state.totals, beta.sum())
    word = np.repeat(np.arange(X.shape[1]), np.diff(state.word_start))
    document, topics = state.token_doc[: state.n_tokens].astype(np.int64), state.topics
    counts = state.doc_topic_counts()[state.order].tocsr()
    chosen = np.random.default_rng(0).choice(state.n_tokens, min(n_sample, state.n_tokens), replace=False)
    found: Counter = Counter()
    for i in chosen:
        w, d, old = word[i], document[i], topics[i]
        of_word = np.bincount(topics[state.word_start[w] : state.word_start[w + 1]], minlength=n_topics)
        rare, g = of_word.sum() < n_topics // 4, inverse * (1 + of_word / beta[w])
        row = slice(*counts.indptr[d : d + 2])
        held, number = counts.indices[row], counts.data[row]
        of_list = float((base * of_word).sum() / beta[w]) if rare else 0.0
        of_document, of_tree = float((number * g[held]).sum()), float((alpha * g).sum()) - of_list
        everything, own = of_document + of_list + of_tree, float(number[held == old][0])
        weight = (own + alpha[old]) * g[old]
        left = (own - 1 + alpha[old]) * max(g[old] - inverse[old] / beta[w], 0) * lift[old]
        draws = 1 / (1 - (weight - left) / everything)
        lines = -(-len(held) // 32)
        run_of = int((document[state.word_start[w] : state.word_start[w + 1]] == d).sum())
        found.update({
            "runs": 1 / min(run_of, 32),
            "draws": draws,
            "of_document": draws * of_document / everything,
            "of_others": draws * (1 - of_document / everything),
            "of_list": draws * of_list / everything,
            "of_tree": draws * of_tree / everything,
            "own": draws * weight / everything,
            "sought": draws * float(alpha[old] * g[old]) / everything * (1 + lines) / 2,
            "again": draws - 1,
            "own_again": (draws - 1) * weight / everything,
            "lines": lines,
            "lines_beyond": max(lines - 4, 0),
            "lists_beyond": lines > 4,
            "walks_beyond": float((number * g[held])[128:].sum()) / of_document,
        })  # fmt: skip
    often = {name: value / len(chosen) for name, value in found.items()}
    return often | {"tokens": 1.0, "groups": 1 / 32, "items": 0.0, "never": 0.0}


def table(counted, often):
    """What was counted, in lines."""
    static, taken = counted
    shown = sorted((name for name in static if taken[name] > 0), key=lambda name: -taken[name])
    figures = ", ".join(f"{often[name]:.2f} {name}" for name in ("runs", "lines", "draws", "own", "again"))
    rows = [f"{' x '.join(name):<32} {static[name]:>5} {taken[name]:>7.1f}" for name in shown]
    return "\n".join([f"{sum(taken.values()):.0f} instructions a token ({figures})", *rows])


if __name__ == "__main__":
    sys.exit(main())
