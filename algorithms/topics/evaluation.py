"""Held-out likelihood of topic models by document completion."""

import numpy as np
from scipy import sparse

from ...errors import DataError
from ...scheduler.threads import effective_n_jobs, run_tasks

_CHUNK = 512  # documents a task
EM_STEPS = 20  # of document shares with fixed topics


def document_chunks(n_documents):
    """Cut documents into ranges for threads; the cut does not depend on how many there are."""
    return [(start, min(start + _CHUNK, n_documents)) for start in range(0, n_documents, _CHUNK)]


def words_at_hand(X, *others):
    """Return the words that occur, and for each matrix the place of every entry's word among them."""
    present = np.zeros(X.shape[1], bool)
    for matrix in (X, *others):
        present[matrix.indices] = True
    words = np.flatnonzero(present)
    place = np.cumsum(present) - 1
    return words, [place[matrix.indices] for matrix in (X, *others)]


def document_completion(
    topic_word, observed, held_out, doc_topic_prior=0.1, *, n_steps=EM_STEPS, n_jobs=None
):
    """Compute the held-out log-likelihood per token by document completion.

    Each document's topic shares theta_d are fitted to its observed tokens by EM with the topics
    fixed, and its held-out tokens are scored::

        theta_dk  <-  (alpha_k + sum_w n_dw theta_dk phi_kw / sum_j theta_dj phi_jw) / normaliser
        score      =  sum_dw h_dw log(sum_k theta_dk phi_kw) / sum_dw h_dw

    The same function judges every system, whatever made its topics. Perplexity is ``exp(-score)``.

    Parameters
    ----------
    topic_word : ndarray of shape (n_components, n_features)
        Word probabilities of each topic, rows summing to 1.
    observed, held_out : CSR matrices of shape (n_documents, n_features)
        Token counts of the same documents (see `stradask.datasets.split_tokens`).
    doc_topic_prior : float or array of shape (n_components,), default=0.1
        alpha.
    n_steps : int, default=20
        EM steps.
    n_jobs : int, optional
        Threads.

    Returns
    -------
    float
        Natural logarithm of the probability per held-out token; ``-inf`` if a held-out word has
        probability zero under every topic.

    Raises
    ------
    DataError
        If the shapes disagree, or no token is held out.

    References
    ----------
    Wallach, Murray, Salakhutdinov, Mimno, "Evaluation methods for topic models", ICML 2009.

    Examples
    --------
    Two topics that share no word: the observed half tells the topic, the other half follows.

    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> from stradask.algorithms.topics.evaluation import document_completion
    >>> topics = np.array([[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]])
    >>> half = csr_array(np.array([[4, 4, 0, 0], [0, 0, 3, 1]]))
    >>> float(np.exp(-document_completion(topics, half, half, 1e-9)).round(3))
    2.0
    """
    topic_word = np.asarray(topic_word)
    observed, held_out = sparse.csr_array(observed), sparse.csr_array(held_out)
    if observed.shape != held_out.shape or topic_word.ndim != 2 or topic_word.shape[1] != observed.shape[1]:
        raise DataError(
            f"topic_word {topic_word.shape}, observed {observed.shape} and held_out {held_out.shape} do not "
            "fit: topic_word is components x words, the others documents x words"
        )
    alpha = np.broadcast_to(np.asarray(doc_topic_prior, np.float64), (len(topic_word),))
    return complete(
        lambda words: topic_word[:, words].T, observed, held_out, alpha, n_steps=n_steps, n_jobs=n_jobs
    )


def complete(probabilities, observed, held_out, alpha, *, n_steps=EM_STEPS, n_jobs=None):
    """Compute `document_completion` from the probabilities of the words that occur only.

    ``probabilities(words)`` gives those of some words, shape (len(words), n_components).
    """
    from ...kernels.lda import inference as kernels

    n_held_out = held_out.sum()
    if n_held_out == 0:
        raise DataError("held_out holds no token; documents need at least two tokens to be divided")
    words, (rows, held_out_rows) = words_at_hand(observed, held_out)
    phi = padded_columns(probabilities(words))
    alpha32 = padded_vector(alpha, phi.shape[1])
    theta = np.empty((observed.shape[0], len(alpha)))

    def part(first, last):
        place = (first, last, observed.indptr, rows, observed.data, phi)
        kernels.expectation_maximisation(*place, alpha32, len(alpha), n_steps, theta)
        return kernels.log_likelihood(first, last, held_out.indptr, held_out_rows, held_out.data, phi, theta)

    chunks = document_chunks(observed.shape[0])
    return float(sum(run_tasks([(part, chunk) for chunk in chunks], effective_n_jobs(n_jobs))) / n_held_out)


def padded_vector(values, width, dtype=np.float32):
    """Copy a vector into one of `width` elements, zeros at the end."""
    out = np.zeros(width, dtype)
    out[: len(values)] = values
    return out


def padded_columns(matrix):
    """Copy a matrix into float32 rows of whole vectors, zeros at the end."""
    from ...kernels.lda.gibbs import padded

    out = np.zeros((matrix.shape[0], padded(matrix.shape[1])), np.float32)
    out[:, : matrix.shape[1]] = matrix
    return out
