"""Groups of documents and words: how many, which words, and which words keep rows of counts.

The number of groups follows from the corpus alone, and every random stream from the seed, the sweep and the
group (or the word, or the document): the result is the same for any number of threads.
"""

import warnings

import numpy as np

from ....errors import DataError
from ....scheduler.schedules.rotation import balance

MOST_OF_A_WORD = 2**31 - 32  # tokens: counts have 31 bits, and a warp of a GPU steps over the end by up to 31
_LEAST_TOKENS, _FEW_GROUPS, _MOST_GROUPS = 100_000, 16, 64  # above few: only if totals are cheap to copy
_TOKENS_PER_RUN = 20  # of one word in one group, on average: its row is fetched and weighed for each
# On average: a block costs some 25 us in addition to its tokens, of which each takes 20 ns. Gibbs sampling of
# 3 million tokens of 4,600 words, 100 topics: 21.5, 24, 26, 33, 55 ns a token with 2, 12, 16, 32, 64 groups.
_TOKENS_PER_BLOCK = 8_000
_MANY_TOPICS, _TOPICS_PER_TOKEN = 2**16, 10  # from so many on, blocks take at most so many a token of theirs


def number_of_groups(n_tokens, n_words, n_topics):
    """G for a corpus of so many tokens of so many words, and a model of so many topics."""
    if n_tokens < _LEAST_TOKENS:
        return 1
    # Each of G² blocks copies the totals of all topics.
    cheap = int(np.sqrt(_TOPICS_PER_TOKEN * n_tokens / n_topics))
    few = max(2, min(_FEW_GROUPS, cheap)) if n_topics >= _MANY_TOPICS else _FEW_GROUPS
    most = max(few, min(_MOST_GROUPS, cheap))
    most = min(most, max(2, int(np.sqrt(n_tokens / _TOKENS_PER_BLOCK))))
    return int(np.clip(n_tokens // (_TOKENS_PER_RUN * n_words), 2, most))


def pays_threads(n_tokens):
    """Whether a corpus has tokens enough for threads to pay."""
    return n_tokens >= _LEAST_TOKENS


def warn_of_idle_threads(n_groups, n_tokens, n_jobs, whose="n_jobs gives", more=None):
    """Warn where there are more threads than groups, and the corpus is not small.

    `whose` says where the threads come from, `more` what makes more groups (by default `n_groups`).
    """
    if n_jobs > n_groups and pays_threads(n_tokens):
        fewer = f", or n_jobs={n_groups}" if whose.startswith("n_jobs") else ""
        more = more or f"set n_groups={n_jobs}"
        warnings.warn(
            f"{whose} {n_jobs} threads, but the corpus has {n_groups} groups of documents, so at most "
            f"{n_groups} threads work at a time: {more} to use all, which costs time a token "
            f"and gives another model{fewer}",
            UserWarning,
            stacklevel=5,
        )


def warn_of_fewer_groups(wanted, n_groups, why):
    """Warn where `n_groups` was given and the fit has fewer groups, or others."""
    if wanted not in (None, n_groups):
        warnings.warn(
            f"n_groups={wanted}, but the fit has {n_groups} groups: {why}", UserWarning, stacklevel=5
        )


def number_of_rows(frequency, n_topics):
    """Words that keep a row of counts: of at least K / 2 tokens, and 4 bytes a token in all."""
    frequent = int(np.count_nonzero(frequency >= max(n_topics // 2, 1)))
    return min(frequent, -(-int(frequency.sum()) // n_topics))


def deal_words(frequency, n_groups):
    """Deal the words that occur into groups that rotate.

    The groups are of equal weight, unless a word is heavier than that. It has a group of its own then, and if
    that were the only heavy one, the shard that meets it in a step would be late. So groups as heavy as the
    word, filled up with other words, stand m apart, lighter ones between them: m is the least number that
    divides the number of groups and leaves that much to each. Any m neighbours, or a multiple, weigh as much
    as any others, and the shards of one worker meet neighbours.

    Returns the words, from the most frequent one down, and the group of each.
    """
    words = np.flatnonzero(frequency)
    words = words[np.argsort(-frequency[words], kind="stable")]
    total, heaviest = frequency.sum().item(), frequency.max(initial=0).item()
    shares = None
    if heaviest * n_groups > total:
        enough = heaviest * n_groups / total
        apart = next((m for m in range(2, n_groups) if n_groups % m == 0 and m >= enough), n_groups)
        n_heavy = n_groups // apart
        light = (total - n_heavy * heaviest) / max(n_groups - n_heavy, 1)
        shares = np.where(np.arange(n_groups) % apart == 0, heaviest, light)
    return words, balance(frequency[words], n_groups, shares)


def check_frequency(frequency, held=0):
    """Refuse words of more tokens than `MOST_OF_A_WORD`, `held` of them in a model already."""
    if int(frequency.max(initial=0)) + held > MOST_OF_A_WORD:
        besides = f", on top of up to {held:,} of a word and topic in the model" if held else ""
        raise DataError(
            f"word {int(frequency.argmax())} of X has {frequency.max():,} tokens{besides}: counts of a word "
            f"go up to {MOST_OF_A_WORD:,}; leave so common a word out"
        )
