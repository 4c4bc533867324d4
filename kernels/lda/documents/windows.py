"""In how many sliding windows over texts words occur, alone and together."""

import numba as nb
import numpy as np

from ...options import KERNEL


@nb.njit(**KERNEL)
def count_windows(tokens, starts, size, word_start, word_topic, word_slot, together):
    """Add the windows of texts that hold both words of a pair to ``together[topic, i, j]``; return all.

    Text d is ``tokens[starts[d]:starts[d + 1]]``, -1 where no topic has the word. Word w is the word number
    ``word_slot[e]`` of the topic ``word_topic[e]`` for e from ``word_start[w]`` to ``word_start[w + 1]``. A
    text of L tokens has L - size + 1 windows, and one if it is shorter than a window. A word is in a window
    as long as an occurrence is. Between two events, windows hold the same words: they are counted at once.
    """
    n_topics, n_slots = together.shape[0], together.shape[1]
    n_windows = np.int64(0)
    fill = np.zeros(n_topics, np.int64)
    number = np.zeros(n_topics + 1, np.int64)
    held, present = np.zeros(n_slots, np.int64), np.zeros(n_slots, np.int64)
    place_of, slot_of = np.zeros(2**12, np.int64), np.zeros(2**12, np.int64)
    for d in range(len(starts) - 1):
        begin, length = starts[d], starts[d + 1] - starts[d]
        last = max(length - size, 0)  # the beginning of the last window
        n_windows += last + 1
        number[:] = 0
        for i in range(length):
            w = tokens[begin + i]
            if w >= 0:
                for e in range(word_start[w], word_start[w + 1]):
                    number[word_topic[e] + 1] += 1
        for k in range(n_topics):
            number[k + 1] += number[k]
            fill[k] = number[k]
        if number[n_topics] > len(place_of):
            place_of, slot_of = (
                np.zeros(2 * number[n_topics], np.int64),
                np.zeros(2 * number[n_topics], np.int64),
            )
        for i in range(length):
            w = tokens[begin + i]
            if w >= 0:
                for e in range(word_start[w], word_start[w + 1]):
                    k = word_topic[e]
                    place_of[fill[k]], slot_of[fill[k]] = i, word_slot[e]
                    fill[k] += 1
        for k in range(n_topics):
            entering, leaving, end = number[k], number[k], number[k + 1]
            if entering == end:
                continue
            n_present, now = 0, np.int64(0)
            while now <= last:
                while entering < end and place_of[entering] - size + 1 <= now:
                    slot = slot_of[entering]
                    if held[slot] == 0:
                        present[n_present] = slot
                        n_present += 1
                    held[slot] += 1
                    entering += 1
                while leaving < entering and place_of[leaving] < now:
                    slot = slot_of[leaving]
                    held[slot] -= 1
                    if held[slot] == 0:
                        at = 0
                        while present[at] != slot:
                            at += 1
                        n_present -= 1
                        present[at] = present[n_present]
                    leaving += 1
                then = last + 1
                if entering < end:
                    then = min(then, place_of[entering] - size + 1)
                if leaving < entering:
                    then = min(then, place_of[leaving] + 1)
                for a in range(n_present):
                    for b in range(n_present):
                        together[k, present[a], present[b]] += then - now
                now = then
            for j in range(leaving, entering):
                held[slot_of[j]] = 0
    return n_windows
