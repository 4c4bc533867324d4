"""Launches of LightLDA's kernels (`lda_light.cu`); the names are those of the CPU's file, `lda_light`.

Memory on the device, in bytes a token: topic 2 (4 above 65,535 topics), document 4, its place in a block 8,
and at most 12 for the table of its word or 8 for its row; and the documents' lists, 64 for every 16 of
``min(length, K)`` topics. Besides, for each topic 20 bytes (32 where alpha is not symmetric), for each of G²
blocks 8, and for each word and document some 40.
"""

import numpy as np

VARIANTS = ({"TOPIC": "unsigned short"}, {"TOPIC": "unsigned int"})
_THREADS = 256


def table_sizes(frequency, row_of_word):
    """Cells of each word's table: half as many again as its tokens, and one; none with a dense row."""
    return np.where((row_of_word >= 0) | (frequency == 0), 0, frequency + frequency // 2 + 1)


class LightOnDevice:
    """A corpus and its counts on a device.

    Parameters
    ----------
    device : `stradask.kernels.device.Device`
    arrays : dict of arrays
        ``places, block_start, word_start, token_doc, topics, entries, line_start, n_lines, lengths,
        row_of_word, rows, cell_start, totals``: as `lda_light.order_blocks` and `lda_light.sweep` have them,
        and where the tables of words begin.
    shift : int
        Bits of a count in the documents' lists.
    n_groups : int
    """

    def __init__(self, device, arrays, shift, n_groups):
        self.device, self.n_groups, self.shift = device, n_groups, np.int32(shift)
        self.n_topics = len(arrays["totals"])
        topic = VARIANTS[arrays["topics"].dtype.itemsize == 4]
        self.kernels = device.kernels("lda_light.cu", **topic)
        self.at = {name: device.put(array) for name, array in arrays.items()}
        self.at["cells"] = device.empty(max(int(arrays["cell_start"][-1]), 1), np.uint64)
        self.at["changes"] = device.zeros(self.n_topics, np.int32)
        self.count_words()

    def count_words(self):
        """Fill the tables of words from the tokens' topics."""
        at = self.at
        at["cells"].fill(0)
        n_words = len(at["cell_start"]) - 1
        words = (at["topics"], at["word_start"], at["cells"], at["cell_start"], np.int32(n_words))
        self.kernels.launch("count_words", _blocks(32 * n_words), _THREADS, words)

    def set_priors(self, alpha, aliases, limits, beta):
        """Take over the priors: float64 by topic and by word, and Walker's tables of the first or none."""
        put = self.device.put
        skewed = len(limits) > 0
        tables = (
            (put(aliases), put(limits))
            if skewed
            else (self.device.zeros(1, np.int64), self.device.zeros(1, np.uint32))
        )
        self._alpha = (put(alpha), np.float64(alpha.sum()), *tables, np.int32(skewed))
        self.set_beta(beta, float(beta.sum()))

    def set_beta(self, beta, beta_sum):
        """Take over the topic-word prior of a sweep."""
        self._beta = (self.device.put(beta), np.float64(beta_sum))

    def sweep(self, n_steps, live, seed, purpose, round_):
        """Move every token once; the lists of documents have no gaps afterwards."""
        at, n_groups = self.at, np.int32(self.n_groups)
        places = tuple(at[n] for n in ("places", "block_start", "word_start", "token_doc", "topics"))
        lists = (at["entries"], at["line_start"], at["n_lines"], self.shift, at["lengths"])
        rows = (at["row_of_word"], at["rows"], at["cells"], at["cell_start"], at["totals"], at["changes"])
        sizes = (np.int32(self.n_topics), np.int32(n_steps), n_groups)
        stream = (np.uint64(seed), np.uint32(purpose), np.uint32(round_))
        for step in range(self.n_groups):
            given = (*places, *lists, *rows, *self._alpha, *self._beta, *sizes, np.int32(step))
            self.kernels.launch("sweep", self.n_groups, 32, (*given, np.int32(live), *stream))
            self.settle()
        self.compact_lists()

    def settle(self):
        """Take the changes of a step over into the totals."""
        totals = (self.at["totals"], self.at["changes"], np.int32(self.n_topics))
        self.kernels.launch("settle", _blocks(self.n_topics), _THREADS, totals)

    def compact_lists(self):
        """Close the gaps in the documents' lists."""
        lists = (self.at["entries"], self.at["line_start"], self.at["n_lines"], self.shift)
        n_documents = len(self.at["n_lines"])
        self.kernels.launch(
            "compact_lists", _blocks(32 * n_documents), _THREADS, (*lists, np.int32(n_documents))
        )

    def get(self, name):
        """Copy an array to the host."""
        return self.device.get(self.at[name])


def _blocks(n_threads):
    return -(-n_threads // _THREADS)
