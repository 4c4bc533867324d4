"""WarpLDA: the authors' C++ program (Chen, Li, Zhu, Chen, VLDB 2016), where it is built.

The environment variable ``WARPLDA`` names a program that is called as ``PROGRAM PREFIX TOPICS ALPHA BETA
SWEEPS OUT``: it loads ``PREFIX`` by ``loadBinary``, runs ``estimate`` without the likelihood, stores
the topics by ``storeZ``, and prints the seconds of each iteration as the library does.
"""

import os
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np


class Solver:
    """A process for each number of sweeps; the seconds are those that the program prints."""

    name = "warplda"
    method = "WarpLDA (C++), two proposals a token"
    requires = ("numpy",)
    program = "WARPLDA"

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Write the corpus by documents and by words; words in random order, as its converter leaves them."""
        self.folder = tempfile.TemporaryDirectory(prefix="warplda-")
        self.prefix = Path(self.folder.name) / "train.bin"
        self.n_words = int(data.n_words)
        n_documents = len(data.indptr) - 1
        self.order = np.random.default_rng(0).permutation(self.n_words).astype(np.uint32)
        documents = np.repeat(np.arange(n_documents, dtype=np.uint32), np.diff(data.indptr))
        documents = np.repeat(documents, data.counts)
        words = self.order[np.repeat(data.indices, data.counts)]
        self.n_tokens = len(words)
        for side, rows, columns, n in (
            ("u", documents, words, n_documents),
            ("v", words, documents, self.n_words),
        ):
            ends = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))])
            ends.astype(np.uint64).tofile(f"{self.prefix}.{side}.idx")
            columns[np.lexsort((columns, rows))].tofile(f"{self.prefix}.{side}.lnk")

    def run(self, watch):
        """One run a step, each from the beginning, half as long again."""
        sweeps = 2
        while True:
            seconds = self.train(sweeps)
            watch.restart()
            watch.seconds = seconds
            if not watch.tick(self.n_tokens * sweeps, self.snapshot):
                return
            sweeps += max(sweeps // 2, 1)

    def train(self, sweeps):
        """Run the program; return the seconds of its iterations."""
        settings = self.settings
        numbers = (settings.n_components, settings.doc_topic_prior, settings.topic_word_prior, sweeps)
        command = [os.environ[self.program], str(self.prefix), *map(str, numbers), self.folder.name + "/z"]
        threads = {"OMP_NUM_THREADS": str(settings.n_jobs)}
        done = subprocess.run(command, env=os.environ | threads, capture_output=True, text=True, check=True)
        return sum(map(float, re.findall(r"Iteration \d+, ([\d.]+) s", done.stdout)))

    def snapshot(self):
        """Topics, and the topic of each token, from lines ``n word:topic ...``."""
        lines = (Path(self.folder.name) / "z").read_text().replace(":", " ").splitlines()
        rows = [np.array(line.split(), np.int64) for line in lines if line.strip()]
        documents = np.repeat(np.arange(len(rows)), [row[0] for row in rows])
        words = np.argsort(self.order)[np.concatenate([row[1::2] for row in rows])]
        topics = np.concatenate([row[2::2] for row in rows])
        weights = np.full(
            (self.settings.n_components, self.n_words), self.settings.topic_word_prior, np.float32
        )
        np.add.at(weights, (topics, words), 1)
        ones = np.ones_like(words)
        return {
            "topic_word": weights / weights.sum(axis=1, keepdims=True),
            "doc_topic": np.column_stack([documents, topics, ones]),
            "word_topic": np.column_stack([words, topics, ones]),
        }
