"""Launches of the kernels for new documents (`lda/inference.cu`), under the names of the CPU's functions.

Memory on the device: 12 bytes a non-zero count of a word and topic, and 12 a count of a document's word.
`fold_in` takes documents in lots; a document 52 bytes for each of its words and topics, 40 to 56 a topic, and
8 a token. `completion` 16 bytes a topic for each document that is at work.
"""

import numpy as np

from ...errors import DeviceError

VARIANTS = ({"IN_SHARED": 1}, {"IN_SHARED": 0})

_FILE = "lda/inference.cu"
_LANES, _CHAINS = 16, 2  # topics of a padded row; chains of a document, as on the CPU
_STATIC = 1024  # bytes of shared memory that the system takes
_USABLE, _ROUNDING = 0.9, 2**14  # part of the free memory; bytes by which arrays are rounded up
_MOST = 2**33  # bytes of a lot, unless one document needs more: as many as can be at work take about that
_AT_WORK = 32  # blocks of a multiprocessor


class FixedTopicsOnDevice:
    """Topics of a fitted model on a device.

    `counts_indptr`, `counts_topics` and `counts` are CSR of words x topics; `beta`, `inverse` and `alpha`
    (without padding) are as in `topic_inference.fold_in`.
    """

    def __init__(self, device, counts_indptr, counts_topics, counts, beta, inverse, alpha):
        self.device, self.n_topics = device, len(inverse)
        self.width = -(-self.n_topics // _LANES) * _LANES
        self._chain_bytes = 8 * _CHAINS * self.width
        padded = np.zeros(self.width, np.float32)
        padded[: self.n_topics] = alpha
        self._topics = (*self._csr(counts_indptr, counts_topics, counts, np.float64), device.put(beta))
        self._topics += (device.put(inverse), device.put(padded))

    def _csr(self, indptr, indices, data, kind=np.int32):
        return tuple(
            self.device.put(np.asarray(array, dtype))
            for array, dtype in ((indptr, np.int64), (indices, np.int32), (data, kind))
        )

    def fold_in(self, indptr, columns, data, seed, purpose, burn_in, kept, tolerance):
        """Posterior mean of the topic shares of documents, float64: `topic_inference.fold_in`.

        Raises DeviceError if there is no room for one of the documents.
        """
        n_documents, n_words = len(indptr) - 1, np.diff(indptr)
        lengths = np.diff(np.append(0, np.cumsum(data, dtype=np.int64))[indptr])
        if not n_documents:
            return np.empty((0, self.n_topics))
        in_shared = self._chain_bytes <= self.device.shared_memory - _STATIC
        X, keys = self._csr(indptr, columns, data), self.device.empty(n_documents, np.uint64)
        kernels = self.device.kernels(_FILE, **VARIANTS[0])
        kernels.launch("content_keys", -(-n_documents // 256), 256, (*X, np.int32(n_documents), keys))
        by_topic = 52 * n_words + (0 if in_shared else 8 * _CHAINS) + 32
        bytes_each = self.width * by_topic + 8 * self.n_topics + 8 * lengths + 32
        theta = np.empty((n_documents, self.n_topics))
        seed = int(seed)
        stream = (np.uint32(seed & 0xFFFFFFFF), np.uint32(seed >> 32), np.uint32(purpose))
        plan = (*stream, np.int32(burn_in), np.int32(kept), np.float64(tolerance))
        sizes = (n_words, lengths)
        for lot in self._lots(np.argsort(-lengths, kind="stable"), bytes_each):  # the longest begin first
            theta[lot] = self._fold_in(lot, *(each[lot] for each in sizes), (*X, keys), plan, in_shared)
        return theta

    def _fold_in(self, documents, n_words, lengths, corpus, plan, in_shared):
        """Shares of the documents of a lot; what they take is free afterwards."""
        n, rows = len(documents), int(n_words.sum()) * self.width
        put, empty = self.device.put, self.device.empty
        out = empty((n, self.n_topics), np.float64)
        made = (
            put(np.append(0, np.cumsum(n_words)).astype(np.int64)),
            put(np.append(0, np.cumsum(lengths)).astype(np.int64)),
            empty(rows, np.float32),
            empty(_CHAINS * rows, np.float64),
            empty(_CHAINS * rows, np.float64),
            empty(rows, np.float64),
            empty(rows, np.float64),
            empty(4 * n * self.width, np.float64),
            empty(1 if in_shared else 2 * _CHAINS * n * self.width, np.int32),
            empty(_CHAINS * int(lengths.sum()), np.int32),
        )
        sizes = (np.int32(self.n_topics), np.int32(self.width))
        arguments = (put(documents.astype(np.int32)), *corpus, *self._topics, *sizes, *made, *plan, out)
        kernels = self.device.kernels(_FILE, IN_SHARED=int(in_shared))
        kernels.launch("fold_in", n, 32, arguments, shared=self._chain_bytes if in_shared else 0)
        shares = self.device.get(out)
        self.device.synchronize()
        return shares

    def _lots(self, order, bytes_each):
        """Cut documents into lots that have room; what one lot takes is free before the next."""
        free = int(self.device.free_memory() * _USABLE) - _ROUNDING
        if len(order) and bytes_each.max() > free:
            d = int(bytes_each.argmax())
            raise DeviceError(
                f"{self.device.name} has {free:,} bytes that can be used; document {d} of X with "
                f"{self.n_topics:,} topics takes {bytes_each[d]:,}: set device='cpu', or split the document"
            )
        lot, held = [], 0
        for d in order:
            if lot and held + bytes_each[d] > min(free, _MOST):
                yield np.array(lot)
                lot, held = [], 0
            lot.append(d)
            held += int(bytes_each[d])
        if lot:
            yield np.array(lot)

    def completion(self, observed, held_out, n_steps):
        """Log-likelihood of the held-out tokens of each document, float64: `topic_sparse.completion`.

        `observed` and `held_out` are CSR: indptr, columns, data.
        """
        n_documents = len(observed[0]) - 1
        free = int(self.device.free_memory() * _USABLE) // (16 * self.n_topics)
        n_blocks = min(n_documents, _AT_WORK * self.device.n_processors, free)
        if n_documents and not n_blocks:
            raise DeviceError(
                f"{self.device.name} has no room for the shares of {self.n_topics:,} topics: set device='cpu'"
            )
        out = self.device.empty(n_documents, np.float64)
        if n_documents:
            arguments = (np.int32(n_documents), *self._csr(*observed), *self._csr(*held_out), *self._topics)
            scratch = self.device.empty(2 * n_blocks * self.n_topics, np.float64)
            arguments += (np.int32(self.n_topics), np.int32(n_steps), scratch, out)
            self.device.kernels(_FILE, **VARIANTS[0]).launch("completion", n_blocks, 32, arguments)
        found = self.device.get(out)
        self.device.synchronize()
        return found
