"""Tokens, lists and rows of counts may lie farther than 32 bits count: every place is computed in 64.

No test has so much memory. So the arrays of a small corpus are given to kernels as if they began far before
their place, and what tells the places in them is larger by as much: the results are the same, and a place cut
down to 32 bits is one of memory that is not there.
"""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from cuda_devices import emulated
from cuda_emulator import HERE, EmulatedArray, EmulatedDevice, EmulatedKernels
from scipy import sparse

import stradask as sd
from stradask.algorithms.topics.blocks.groups import MOST_OF_A_WORD
from stradask.datasets.generators import make_lda_corpus
from stradask.kernels.cuda.device import standing_in

# Of a row of a word: one of each, or one for each of two chains.
OF_ROWS = dict.fromkeys(("phi", "settled", "rest"), "width") | dict.fromkeys(
    ("all_chosen", "all_member"), ("width", 2)
)
# By file: the array that tells places, where in each so many of its numbers, by how much the places are moved
# (no negative one is), and the arrays in which they are, with the numbers that a place has there.
MOVED = {
    "lda/light.cu": [
        ("word_start", 0, 1, 2**33, {"topics": 1}),
        ("block_start", 0, 1, 2**33, {"places": 3}),
        ("doc_start", 0, 1, 2**33, {"places": 2}),
        ("line_start", 0, 1, 2**33, {"entries": 16}),
        ("cell_start", 0, 1, 2**33, {"cells": 1}),
        ("coming_start", 0, 1, 2**33, {"coming": 1}),
        ("row_of_word", 0, 1, 2**30, {"rows": "n_topics"}),
    ],
    "lda/saber.cu": [
        ("line_start", 0, 1, 2**30, {"entries": 32}),
        ("list_start", 0, 1, 2**30, {"lists": 32}),
        ("start", 0, 1, 2**33, {"topics": 1}),
        ("items", 4, 6, 2**30, {"rows": "n_topics"}),
        ("items", 5, 6, 2**33, {"listed_topics": 1}),
        ("ranges", 0, 3, 2**30, {"rows": "n_topics"}),
    ],
    "lda/inference.cu": [
        ("indptr", 0, 1, 2**33, {"columns": 1, "data": 1}),
        ("held_indptr", 0, 1, 2**33, {"held_columns": 1, "held_data": 1}),
        ("counts_indptr", 0, 1, 2**33, {"counts_topics": 1, "counts": 1}),
        ("row_start", 0, 1, 2**33, OF_ROWS),
        ("token_start", 0, 1, 2**33, {"drawn": 2}),
    ],
}


ARRAYS_OF_A_WORD = [
    ("ranges", 3, np.int32),
    ("coming_start", 1, np.int64),
    ("word_start", 2, np.int64),
    ("row_of_word", 1, np.int32),
    ("rows", 2, np.int32),
    ("cells", 1, np.uint64),
    ("cell_start", 2, np.int64),
    ("changes", 2, np.int32),
]


class FarArray(EmulatedArray):
    """An array that is said to begin before its place."""

    before = 0  # bytes

    @property
    def ctypes(self):
        return SimpleNamespace(data=super().ctypes.data - self.before)


class FarKernels(EmulatedKernels):
    """Kernels whose places are far."""

    def __init__(self, text, device, lines):
        super().__init__(text, device)
        self.lines = lines

    def launch(self, name, grid, block, arguments, shared=0, stream=None):
        of = {parameter.name: value for parameter, value in zip(self.declared[name], arguments, strict=True)}
        for line in self.lines:
            tells, column, step, moved, places = line
            found = places.keys() & of.keys()
            if tells not in of or not found:
                continue
            told = np.array(of[tells])
            which = told[column::step]
            which[which >= 0] += moved
            of[tells] = self.device.put(told)
            for array in found:
                each = places[array]
                if not isinstance(each, int):
                    size, times = each if isinstance(each, tuple) else (each, 1)
                    each = times * int(of[size])
                of[array] = of[array].view(FarArray)
                of[array].before = moved * each * of[array].itemsize
                assert moved * each >= 2**32
                self.device.moved.add((tells, array))
        super().launch(name, grid, block, tuple(of.values()), shared, stream)


class FarDevice(EmulatedDevice):
    """An emulated GPU on which everything lies far."""

    def __init__(self):
        super().__init__()
        self.moved = set()

    def built(self, file, text):
        return FarKernels(text, self, MOVED[file])


def found_on(device, sampler):
    """What a fit and inference find."""
    X = make_lda_corpus(40, 80, 5, mean_length=40, random_state=0)[0].toarray()
    X[:, 0] = 20  # more than half of a group
    X = sparse.csr_array(X)
    lda = sd.LatentDirichletAllocation(120, sampler=sampler, device="cuda", max_iter=2, random_state=0)
    with standing_in(device):
        lda.fit(X)
        shares, score = lda.transform(X[:2], n_sweeps=10), lda.score(X[:2])
    return lda.components_, lda.log_likelihood_, lda.doc_topic_counts_.toarray(), shares, score


def take_over_at_the_end():
    """Let the tokens with the highest numbers that a word can have take over their topics."""
    device, n, last = EmulatedDevice(), 75, MOST_OF_A_WORD
    arrays = {name: device.zeros(size, kind) for name, size, kind in ARRAYS_OF_A_WORD}
    arrays["ranges"][:] = 0, last - n, last
    arrays["coming"], arrays["topics"] = device.put(np.ones(n, np.uint16)), device.zeros(n, np.uint16)
    far = {name: arrays[name].view(FarArray) for name in ("coming", "topics")}
    for array in far.values():
        array.before = (last - n) * array.itemsize
    kernels = device.kernels("lda/light.cu", TOPIC="unsigned short")
    given = arrays | far | {"first_range": np.int32(0), "last_range": np.int32(1), "n_topics": np.int32(2)}
    kernels.launch("take_over", 1, 128, tuple(given[each.name] for each in kernels.declared["take_over"]))
    assert arrays["topics"].tolist() == [1] * n
    assert arrays["changes"].tolist() == arrays["rows"].tolist() == [-n, n]


def main():
    """Compare; in a process of its own, which a wrong place ends."""
    take_over_at_the_end()
    moved = set()
    for sampler in ("light", "saber"):
        near, far = EmulatedDevice(), FarDevice()
        for one, other in zip(found_on(near, sampler), found_on(far, sampler), strict=True):
            np.testing.assert_array_equal(one, other)
        assert near.launches == far.launches
        moved |= far.moved
    listed = {(line[0], array) for lines in MOVED.values() for line in lines for array in line[4]}
    assert moved == listed, listed - moved
    sys.stdout.write("the same\n")


@emulated
def test_places_are_computed_in_64_bits():
    root = Path(sd.__file__).resolve().parents[1]
    path = os.pathsep.join([str(HERE), str(root), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-X", "faulthandler", "-c", "import test_far_offsets; test_far_offsets.main()"]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "the same\n"), done.stderr[-3000:]
