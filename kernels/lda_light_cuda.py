"""Launches of LightLDA's kernels (`lda_light.cu`); the names are those of the CPU's file, `lda_light`.

Memory on the device, in bytes a token: topic 2 (4 above 65,535 topics), twice for common words, document 4,
its place in a block 8, and at most 12 for the table of its word or 8 for its row; and the documents' lists,
64 for every 16 of ``min(length, K)`` topics. Besides, for each topic 20 bytes (32 where alpha is not
symmetric), for each of G² blocks 8, and for each word and document some 50.
"""

import itertools

import numpy as np

VARIANTS = ({"TOPIC": "unsigned short"}, {"TOPIC": "unsigned int"})


def table_sizes(frequency, row_of_word):
    """Cells of each word's table: half as many again as its tokens, and one; none with a dense row."""
    return np.where((row_of_word >= 0) | (frequency == 0), 0, frequency + frequency // 2 + 1)


class LightOnDevice:
    """A corpus and its counts on a device.

    Parameters
    ----------
    device : `stradask.kernels.device.Device`
    arrays : dict of arrays
        ``token_doc, topics``, ``word_start, row_of_word, rows``, ``entries, line_start, n_lines, lengths``
        and ``totals``: as `lda_light.sweep` has them. ``places, block_start``: `lda_light.order_blocks`.
        ``common`` words, and ``common_places, doc_start``: `lda_light.order_common`. ``cell_start,
        coming_start``: where the tables of words begin, and room for the coming topics of common words.
    shift : int
        Bits of a count in the documents' lists.
    n_groups : int
    parts : sequence of int
        Where the parts of the documents begin in which common words are moved, and where the last one ends.
    """

    def __init__(self, device, arrays, shift, n_groups, parts):
        self.device, self.n_groups, self.shift = device, n_groups, np.int32(shift)
        self.parts = list(dict.fromkeys(map(int, parts)))
        self.n_topics, self.n_documents = len(arrays["totals"]), len(arrays["n_lines"])
        self.kernels = device.kernels("lda_light.cu", **VARIANTS[arrays["topics"].dtype.itemsize == 4])
        self.at = {name: device.put(array) for name, array in arrays.items()}
        self.at["cells"] = device.empty(int(arrays["cell_start"][-1]), np.uint64)
        self.at["coming"] = device.empty(int(arrays["coming_start"][-1]), arrays["topics"].dtype)
        self.at["changes"] = device.zeros(self.n_topics, np.int32)
        self.count_words()

    def _arrays(self, names):
        return tuple(self.at[name] for name in names.split())

    def count_words(self):
        """Fill the tables of words from the tokens' topics."""
        self.at["cells"].fill(0)
        n_words = len(self.at["cell_start"]) - 1
        arrays = self._arrays("topics word_start cells cell_start")
        self.kernels.launch("count_words", _warps(n_words, 256), 256, (*arrays, np.int32(n_words)))

    def set_alpha(self, alpha, aliases, limits):
        """Take over alpha, float64 by topic, and Walker's tables, which are empty if it is symmetric."""
        put, skewed = self.device.put, np.int32(len(limits) > 0)
        self._alpha = (put(alpha), np.float64(alpha.sum()), put(aliases), put(limits), skewed)

    def set_beta(self, beta, beta_sum):
        """Take over beta, float64 by word, as a sweep has it."""
        self._beta = (self.device.put(beta), np.float64(beta_sum))

    def sweep(self, n_steps, seed, purpose, round_):
        """Move every token once: common words first, then the blocks step by step.

        With one group the totals are live, and there are to be no common words. The lists of documents have
        no gaps afterwards.
        """
        sizes = (np.int32(self.n_topics), np.int32(n_steps))
        model = (*self._alpha, *self._beta, *sizes, np.uint64(seed), np.uint32(purpose), np.uint32(round_))
        if len(self.at["common"]):
            for first, last in itertools.pairwise(self.parts):
                self.sweep_common(model, first, last)
        places = self._arrays("places block_start")
        corpus = self._arrays("word_start token_doc topics entries line_start n_lines")
        counts = self._arrays("lengths row_of_word rows cells cell_start totals changes")
        groups, live = np.int32(self.n_groups), np.int32(self.n_groups == 1)
        for step in range(self.n_groups):
            arguments = (*places, groups, np.int32(step), live, *corpus, self.shift, *counts, *model)
            self.kernels.launch("sweep", self.n_groups, 32, arguments)
            self.settle()
        self.compact_lists()

    def sweep_common(self, model, first, last):
        """Move the tokens of common words in a range of documents, from counts that stand still."""
        common = self._arrays("common_places doc_start")
        coming = self._arrays("coming_start coming")
        corpus = self._arrays("word_start topics entries line_start n_lines")
        counts = self._arrays("lengths row_of_word rows cells cell_start totals")
        documents, groups = (np.int32(first), np.int32(last)), np.uint32(self.n_groups)
        arguments = (*common, *documents, *coming, groups, *corpus, self.shift, *counts, *model)
        self.kernels.launch("sweep_common", _warps(last - first, 128), 128, arguments)
        words = self._arrays(
            "coming_start coming word_start topics row_of_word rows cells cell_start changes"
        )
        n_common = len(self.at["common"])
        which = (self.at["common"], np.int32(n_common), self.at["token_doc"], *documents)
        arguments = (*which, *words, np.int32(self.n_topics))
        self.kernels.launch("take_over", _warps(n_common, 128), 128, arguments)
        self.settle()

    def settle(self):
        """Take the changes over into the totals."""
        arguments = (*self._arrays("totals changes"), np.int32(self.n_topics))
        self.kernels.launch("settle", -(-self.n_topics // 256), 256, arguments)

    def compact_lists(self):
        """Close the gaps in the documents' lists."""
        lists = self._arrays("entries line_start n_lines")
        arguments = (*lists, self.shift, np.int32(self.n_documents))
        self.kernels.launch("compact_lists", _warps(self.n_documents, 256), 256, arguments)

    def get(self, name):
        """Copy an array to the host."""
        return self.device.get(self.at[name])


def _warps(n, threads):
    """Blocks of so many threads that hold n warps."""
    return -(-32 * n // threads)
