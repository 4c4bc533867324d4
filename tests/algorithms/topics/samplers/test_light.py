"""LightLDA's proposals: a sweep replayed by its definition, the posterior kept, and the state around it.

Exactness is shown as for Gibbs sampling: every replicate starts from an exact draw of the posterior, which is
enumerated, and makes one sweep; the replicates must again be draws of the posterior.
"""

import itertools
from functools import cache

import numba as nb
import numpy as np
import pytest
from lda_chains import Chain, Tokens
from scipy import sparse, stats
from scipy.special import gammaln

import stradask as sd
from stradask.algorithms.topics.blocks.groups import number_of_groups
from stradask.errors import DataError, ModelFileError
from stradask.kernels.lda.light import sweep
from stradask.kernels.random import hash32, philox4x32

# How many replicates, and the bias that they are to show: what a chi-square test makes of a bias grows with
# its square and with their number.
FEW, MANY = 100_000, 400_000
BIASES = {FEW: 0.04, MANY: 0.02}
SIZES = [FEW, pytest.param(MANY, marks=pytest.mark.slow)]
CORPORA = {
    "two topics": (np.array([[2, 1, 0], [0, 2, 1], [1, 0, 1]]), 2, 0.3, 0.4),
    "three topics": (np.array([[2, 1, 0], [1, 0, 1], [0, 1, 0]]), 3, 0.3, 0.4),
    "one document": (np.array([[3, 3, 2]]), 3, 0.7, 0.2),
    "vector priors": (np.array([[1, 2, 0], [0, 1, 1], [1, 0, 1]]), 3, [0.2, 0.5, 1.1], [0.3, 0.1, 0.7]),
}


def _state(X, n_topics, alpha=0.3, beta=0.4, kind="light", **options):
    alpha = np.broadcast_to(np.asarray(alpha, float), n_topics).copy()
    beta = np.broadcast_to(np.asarray(beta, float), X.shape[1]).copy()
    X = sparse.csr_array(X.astype(np.int32))
    if kind is Tokens:
        return Tokens(X, n_topics, alpha, beta, 5, **options)
    return Chain(X, n_topics, alpha, beta, 5, sampler=kind, **options)


def _run(state, sweeps, first=0):
    for round_ in range(first, first + sweeps):
        state.sweep(round_)
    return state


@pytest.fixture(scope="module")
def corpus():
    return sd.datasets.make_lda_corpus(1200, n_features=500, n_components=10, random_state=0)[0]


# --- one sweep, by its definition ---------------------------------------------------------------------------


class _Replay:
    """The same sweep token by token: every count summed from the definition, the lists kept in order."""

    def __init__(self, state, n_steps):
        self.state, self.n_steps = state, n_steps
        self.z = state.topics.astype(int)
        self.words = state.words
        self.docs = state.token_doc[: state.n_tokens].astype(int)
        lists, self.lists = state.documents, []
        for first, lines in zip(lists.line_start, lists.n_lines, strict=False):
            mine = lists.entries[first * 16 : (first + lines) * 16]
            self.lists.append([[int(e) >> lists.shift, int(e) & ((1 << lists.shift) - 1)] for e in mine])

    def sweep(self, round_):
        for w in self.state.group_words[0]:
            key = philox4x32(*(np.uint32(v) for v in (w, 0, round_, 7, 5, 0)))[0]
            for i in range(*self.state.word_start[w : w + 2]):
                draws = self._draws(i, np.uint32(key))
                self._move(i, w, draws)
        return self.z

    @staticmethod
    def _draws(i, key):
        with np.errstate(over="ignore"):
            x = np.uint32(i) * np.uint32(0x9E3779B9)
            while True:
                yield int(hash32(x ^ key))
                key = np.uint32(key + np.uint32(0x5BD1E995))

    def _move(self, i, w, draws):
        state, others = self.state, np.arange(len(self.z)) != i
        mine = self.lists[self.docs[i]]
        own = next(slot for slot in mine if slot[0] == self.z[i] and slot[1])
        own[1] -= 1
        in_word = self.z[others & (self.words == w)]
        in_doc = self.z[others & (self.docs == self.docs[i])]
        totals = np.bincount(self.z[others], minlength=state.n_topics) + state.beta.sum()
        of_word = np.bincount(in_word, minlength=state.n_topics) + state.beta[w]
        of_doc = np.bincount(in_doc, minlength=state.n_topics) + state.alpha
        p = of_doc * of_word / totals
        s = self.z[i]
        for q, from_word in itertools.islice(itertools.cycle([(of_word, 1), (of_doc, 0)]), 2 * self.n_steps):
            choice, pick, u = next(draws) / 2**32, next(draws), next(draws) / 2**32
            pool = in_word if from_word else np.repeat(*np.array(mine).T)
            if choice * q.sum() < len(pool):
                t = pool[pick * len(pool) >> 32]
            else:
                t = pick * state.n_topics >> 32
                fraction = pick * state.n_topics & (2**32 - 1)
                if not from_word and len(state.limits) and fraction >= state.limits[t]:
                    t = state.aliases[t]
            if u < p[t] * q[s] / (p[s] * q[t]):
                s = t
        slot = own if s == self.z[i] else next((slot for slot in mine if slot[0] == s and slot[1]), None)
        self.z[i] = s
        if slot is None:
            slot = next((slot for slot in mine if not slot[1]), None)
            if slot is None:
                mine.extend([0, 0] for _ in range(16))
                slot = mine[-16]
        slot[:] = s, slot[1] + 1


@pytest.mark.parametrize("alpha", [0.3, np.linspace(0.05, 0.6, 60)], ids=["one alpha", "vector"])
@pytest.mark.parametrize("n_steps", [1, 2])
def test_a_sweep_is_what_its_docstring_says(alpha, n_steps):
    """Lists that grow by lines, words with rows and without, words of one token, documents of one token."""
    rng = np.random.default_rng(0)
    X = rng.poisson(rng.gamma(0.4, 1.0, (14, 1)) * rng.gamma(0.5, 6.0, (1, 25)))
    X[0], X[0, 3] = 0, 1
    state = _state(X, 60, alpha, rng.random(25) + 0.01, Tokens, n_steps=n_steps)
    state.begin_from(rng.integers(0, 12, state.n_tokens).astype(np.uint16))
    assert {0, 1} <= set((state.row_of_word >= 0).astype(int))
    assert state.documents.n_lines.max() == 1
    assert 1 in state.lengths
    assert 1 in np.diff(state.word_start)
    replay = _Replay(state, n_steps)
    before = state.topics.copy()
    for round_ in range(2):
        state.move(round_)
        assert (state.topics == replay.sweep(round_)).all()
        assert (state.totals == np.bincount(state.topics, minlength=60)).all()
    assert (state.topics != before).mean() > 0.2
    assert state.documents.n_lines.max() >= 2
    kept = state.rows.copy()
    _check_counts(state)
    assert (kept == state.rows).all()


def _check_counts(state):
    """Lists and totals are those of the topics."""
    kept = state.doc_topic_counts(), state.totals.copy()
    state.begin_from(state.topics.copy())
    assert (kept[0] != state.doc_topic_counts()).nnz == 0
    assert (kept[1] == state.totals).all()


# --- the posterior, by enumeration --------------------------------------------------------------------------


@cache
def _enumeration(name):
    """Every assignment, its posterior probability, and the cell of a statistic that it belongs to."""
    state = _state(*CORPORA[name], Tokens)
    words, docs = state.words, state.token_doc[: state.n_tokens]
    z = np.array(list(itertools.product(range(state.n_topics), repeat=state.n_tokens)))
    joint = np.zeros(len(z))
    for k in range(state.n_topics):
        joint -= gammaln((z == k).sum(axis=1) + state.beta.sum())
        for d in np.unique(docs):
            joint += gammaln((z[:, docs == d] == k).sum(axis=1) + state.alpha[k])
        for w in np.unique(words):
            joint += gammaln((z[:, words == w] == k).sum(axis=1) + state.beta[w])
    p = np.exp(joint - joint.max())
    if np.ptp(state.alpha) == 0:  # which tokens agree: names of topics do not matter
        statistic = (z[:, :, None] == z[:, None, :]).reshape(len(z), -1)
    else:  # sizes of the topics, and whether two far tokens agree
        sizes = [(z == k).sum(axis=1) for k in range(state.n_topics)]
        statistic = np.column_stack([*sizes, z[:, 0] == z[:, -1]])
    return z, p / p.sum(), np.unique(statistic, axis=0, return_inverse=True)[1].ravel()


@nb.njit
def _count(topics, word_start, token_doc, shift, entries, row_of_word, rows, totals):
    """Totals, rows, and packed lists of documents that have one line each."""
    totals[:], rows[:], entries[:] = 0, 0, 0
    for i in range(len(topics)):
        totals[topics[i]] += 1
        j, k = token_doc[i] * 16, np.uint32(topics[i])
        while entries[j] and entries[j] >> shift != k:
            j += 1
        entries[j] = (k << shift) | ((entries[j] & np.uint32((1 << shift) - 1)) + 1)
    for w in range(len(row_of_word)):
        for i in range(word_start[w], word_start[w + 1]):
            if row_of_word[w] >= 0:
                rows[row_of_word[w], topics[i]] += 1


@nb.njit
def _sweeps(
    n, starts, words, cuts, bounds, word_start, token_doc, entries, line_start, n_lines, shift, lengths,
    row_of_word, rows, alpha, aliases, limits, beta, n_steps,
):  # fmt: skip
    """Topics after each of n sweeps: from the starts while there are some, then from the sweep before."""
    topics, out = starts[0].copy(), np.empty((n, starts.shape[1]), starts.dtype)
    totals, n_groups = np.zeros(len(alpha), np.int64), len(cuts) - 1
    none = np.empty(0, np.int64)  # totals are live
    for r in range(n):
        if r < len(starts):
            topics[:] = starts[r]
        _count(topics, word_start, token_doc, shift, entries, row_of_word, rows, totals)
        for step in range(n_groups):
            before = totals.copy()
            for g in range(n_groups):
                h, own = (g + step) % n_groups, before.copy()
                sweep(
                    words[cuts[h] : cuts[h + 1]], bounds[g], bounds[g + 1], word_start, token_doc, topics,
                    entries, line_start, n_lines, shift, lengths, row_of_word, rows, own, none, alpha,
                    alpha.sum(), aliases, limits, beta, beta.sum(), n_steps, np.uint64(1), np.int64(7), r, g,
                )  # fmt: skip
                totals += own - before
        out[r] = topics
    return out


def _swept(state, n, starts, *, rows, n_steps):
    lists, n_words = state.documents, len(state.beta)
    row_of_word = np.arange(n_words) if rows else np.full(n_words, -1)
    cuts = np.cumsum([0, *map(len, state.group_words)])
    return _sweeps(
        n, starts.astype(np.uint16), np.concatenate(state.group_words), cuts, state.bounds, state.word_start,
        state.token_doc, lists.entries, lists.line_start, lists.n_lines, lists.shift, state.lengths,
        row_of_word.astype(np.int32), np.zeros((n_words, state.n_topics), np.int32), state.alpha,
        state.aliases, state.limits, state.beta, n_steps,
    )  # fmt: skip


def _replicates(name, n, *, rows, n_steps=1):
    """Assignments after one sweep from exact draws."""
    z, posterior, _ = _enumeration(name)
    starts = z[np.random.default_rng(0).choice(len(z), n, p=posterior)]
    return _swept(_state(*CORPORA[name], Tokens), n, starts, rows=rows, n_steps=n_steps)


def _cells(name, codes):
    partition = _enumeration(name)[2]
    return np.bincount(partition[codes], minlength=partition.max() + 1)


def _codes(sampled, n_topics):
    """Place of each assignment in the enumeration."""
    return sampled.astype(np.int64) @ (n_topics ** np.arange(sampled.shape[1])[::-1])


def _p_value(name, sampled):
    _, posterior, partition = _enumeration(name)
    observed = _cells(name, _codes(sampled, CORPORA[name][1]))
    expected = np.bincount(partition, weights=posterior) * len(sampled)
    rare = expected < 10  # chi-square needs some counts in every cell
    if rare.any():
        observed = np.append(observed[~rare], observed[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    return stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue


@pytest.mark.parametrize(("rows", "n_steps"), [(True, 2), (False, 1)], ids=["kept rows", "recounted"])
@pytest.mark.parametrize("name", CORPORA)
@pytest.mark.parametrize("n", SIZES)
def test_one_sweep_leaves_the_posterior_as_it_is(n, name, rows, n_steps):
    assert _p_value(name, _replicates(name, n, rows=rows, n_steps=n_steps)) > 1e-4


@pytest.mark.parametrize("name", CORPORA)
@pytest.mark.parametrize("n", SIZES)
def test_a_planted_bias_of_some_per_cent_is_rejected(n, name):
    """A defect that in so many of the sweeps gives the last token the topic of the first."""
    sampled = _replicates(name, n, rows=False)
    struck = np.random.default_rng(1).random(len(sampled)) < BIASES[n]
    sampled[struck, -1] = sampled[struck, 0]
    assert _p_value(name, sampled) < 1e-6


@pytest.mark.parametrize(
    "name",
    [
        "two topics",
        pytest.param("three topics", marks=pytest.mark.slow),
        pytest.param("vector priors", marks=pytest.mark.slow),
    ],
)
def test_groups_stay_within_their_stated_distance(name):
    """Each group sees the other's changes of the totals a step late: those of half of ten tokens."""
    state = _state(*CORPORA[name], Tokens, n_groups=2)
    chain = _swept(state, FEW, state.topics[None], rows=False, n_steps=2)
    _, posterior, partition = _enumeration(name)
    sampled = _cells(
        name, _codes(chain[:, _token_order(state, _state(*CORPORA[name], Tokens))], state.n_topics)
    )
    distance = 0.5 * abs(sampled / FEW - np.bincount(partition, weights=posterior)).sum()
    assert distance < 0.1


def _token_order(state, other):
    """Where each token of `other` lies in `state`: both lie word by word, documents in their own order."""
    places = [np.lexsort((s.docs, s.words)) for s in (state, other)]
    return places[0][np.argsort(places[1])]


# --- the state ------------------------------------------------------------------------------------------


def test_it_stays_where_gibbs_sampling_stays(corpus):
    """Two samplers of one posterior: from the same topics on, the joint log-likelihood keeps one level."""
    states = [_state(corpus[:400], 10, 0.1, 0.01, kind=kind) for kind in ("gibbs", "light")]
    begin = _run(states[0], 60).topics
    levels = []
    for state in states:
        state.begin_from(begin.copy())
        levels.append(np.mean([_run(state, 5, first).joint_log_likelihood() for first in range(0, 40, 5)]))
    assert abs(levels[1] - levels[0]) < 0.003 * abs(levels[0])


@pytest.mark.parametrize("n_topics", [70, 300])
def test_the_same_topics_on_any_number_of_threads(corpus, n_topics):
    state = _state(corpus, n_topics, n_groups=4)
    counts = _run(state, 4).word_topic_counts()
    for n_jobs in (1, 3):
        found = _state(corpus, n_topics, n_groups=4).run(4, n_jobs=n_jobs).fetched
        assert (found.words != counts).nnz == 0
    _check_counts(state)


def test_it_goes_on_from_its_arrays_bit_for_bit(corpus):
    whole = _run(_state(corpus, 80, n_groups=3), 3)
    kept = whole.saved()
    other = _state(corpus, 80, n_groups=3)
    other.restore(kept)
    assert (_run(whole, 2, 3).topics == _run(other, 2, 3).topics).all()
    with pytest.raises(ModelFileError, match="lists do not fit"):
        other.restore(kept | {"shard-1/entries": kept["shard-1/entries"] + np.uint32(1)})


def test_a_million_topics():
    """With 32-bit topics, and lists of more than one line."""
    X = np.random.default_rng(0).poisson(1.0, (30, 60))
    state = _run(_state(X, 1_000_000, 5e-5, 0.01), 3)
    assert state.topics.dtype == np.uint32
    assert state.totals.sum() == X.sum()
    _check_counts(state)


@pytest.mark.parametrize(
    ("n_tokens", "n_words", "n_topics", "n_groups"),
    [
        (99_999, 800, 10**6, 1),
        (1_500_000, 4_000, 65_535, 13),
        (150_000, 800, 70_000, 4),
        (150_000, 800, 10**6, 2),
        (2_000_000, 800, 10**6, 4),
        (18_000_000, 100_000, 10**6, 9),
    ],
)
def test_blocks_of_huge_models_have_tokens_for_their_topics(n_tokens, n_words, n_topics, n_groups):
    assert number_of_groups(n_tokens, n_words, n_topics) == n_groups


def test_a_document_too_long_for_so_many_topics_is_refused():
    with pytest.raises(DataError, match="split documents"):
        _state(np.array([[5000, 1]]), 1_000_000)


def test_a_vector_prior_moves_topics(corpus):
    alpha = np.full(10, 0.01)
    alpha[3] = 5.0
    state = _run(_state(corpus, 10, alpha, 0.01), 20)
    assert state.totals.argmax() == 3


def test_empty_documents_and_words_that_never_occur():
    X = np.zeros((5, 9), int)
    X[1, 3] = X[3, 3] = X[3, 7] = 1
    state = _run(_state(X, 3), 5)
    assert state.totals.sum() == 3
    assert state.doc_topic_counts().sum(axis=1).tolist() == [0, 1, 0, 2, 0]
