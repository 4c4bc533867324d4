"""Places for the topics of documents as packed lists, for every kernel that fills them."""

import numpy as np

from ....errors import DataError
from ....kernels.lda.host import LANES
from .restoring import taken, unfit

DENSE_TOPICS = 256  # up to here a dense row is drawn from faster than a list


class ListRoom:
    """A list of ``topic << shift | count`` a document, with capacity for min(length, K) topics.

    Lists are in lines of 16 entries, 64 bytes; an empty document has none, and the list of document d begins
    at ``line_start[d]``, in lines. How many bits the count has, `shift`, follows from the longest document.
    """

    def __init__(self, lengths, n_topics):
        self.n_topics = n_topics
        longest = int(lengths.max(initial=0))
        self.shift = max(longest.bit_length(), 1)
        if not self.hold(longest, n_topics):
            most_tokens = 2 ** (32 - (n_topics - 1).bit_length()) - 1
            raise DataError(
                f"X has a document of {longest:,} tokens, which with n_components={n_topics} does not fit "
                f"the 32 bits of a document's topic and count; split documents of more than "
                f"{most_tokens:,} tokens, or take at most {2 ** (32 - self.shift):,} topics"
            )
        lines = (np.minimum(lengths, n_topics) + LANES - 1) // LANES
        self.line_start = np.concatenate([[0], np.cumsum(lines)])

    @staticmethod
    def hold(longest, n_topics):
        """Whether a topic and its count in a document of `longest` tokens fit 32 bits."""
        return n_topics <= 2 ** (32 - max(longest.bit_length(), 1))

    def of_checkpoint(self, arrays, n_entries):
        """Take the lists of a checkpoint, ``entries`` and ``n_lines``, after checking what kernels trust.

        That they hold the topics of the tokens is left to the caller.
        """
        entries, n_lines = taken(arrays, "entries", "n_lines")
        fits = entries.shape == (n_entries,) and n_lines.shape == (len(self.line_start) - 1,)
        fits = fits and entries.dtype == np.uint32 and n_lines.dtype == np.int32
        fits = fits and (n_lines >= 0).all() and (n_lines <= np.diff(self.line_start)).all()
        if not (fits and (entries >> np.uint32(self.shift)).max(initial=0) < self.n_topics):
            raise lists_do_not_fit()
        return entries, n_lines


def lists_do_not_fit():
    """The error of lists of a checkpoint that are not of its topics."""
    return unfit("lists", "its topics")
