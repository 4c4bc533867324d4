"""Which sampler a topic model runs, and when its chain has settled."""

import numpy as np

from ....errors import DataError
from ....kernels.cuda.device import device_for
from .annealing import annealed_sweeps
from .light_cuda import LightCudaState
from .saber import SaberState
from .state import number_of_groups

_LEAST_SWEEPS = 8  # of a fit that is worth two samplers
_LEAST_TOPICS = 64  # for fewer a Gibbs sweep is as cheap


def sampler_state(
    X,
    n_topics,
    alpha,
    beta,
    seed,
    *,
    sampler,
    exact,
    max_sweeps,
    known,
    device="cpu",
    anneals=False,
    **options,
):
    """Make the state of the sampler that the parameters, or the sizes, ask for.

    Parameters
    ----------
    X, n_topics, alpha, beta, seed, options
        See `CorpusState`.
    sampler, exact, device
        As in `LatentDirichletAllocation`.
    max_sweeps : int
    known : dict
        What is known of words and documents, see `GibbsState`; None where nothing is.
    anneals : bool, default=False
        Anneal the first sweeps (`annealing`), unless the sampler is exact or something is known beforehand.
    """
    model, nothing_known = (X, n_topics, alpha, beta, seed), all(part is None for part in known.values())
    # Without numba where a GPU draws:
    if sampler == "saber" and nothing_known:
        options["annealed"] = annealed_sweeps(max_sweeps) if anneals else 0
        return SaberState(*model, device=device_for(device), **options)
    if sampler == "light" and device == "cuda" and nothing_known:
        options["annealed"] = annealed_sweeps(max_sweeps) if anneals and not exact else 0
        return LightCudaState(*model, device=device_for(device), exact=exact, **options)
    from . import auto
    from .gibbs import GibbsState
    from .light import LightState
    from .warp import WarpState

    if not nothing_known:
        check_knows(sampler)
        return GibbsState(*model, exact=exact, **(options | known))
    if sampler == "auto":
        longest = int(np.asarray(X.sum(axis=1)).max(initial=0))
        sampler = chosen(int(X.sum(dtype=np.int64)), X.shape[1], longest, n_topics, exact, max_sweeps)
    if sampler == "both":
        return auto.AutoState(*model, max_sweeps=max_sweeps, anneals=anneals, **options)
    if sampler == "warp":
        return WarpState(*model, annealed=annealed_sweeps(max_sweeps, passes=1) if anneals else 0, **options)
    options["annealed"] = annealed_sweeps(max_sweeps) if anneals and not exact else 0
    kind = LightState if sampler == "light" else GibbsState
    return kind(*model, exact=exact, **options)


def check_knows(sampler):
    """Refuse a sampler that takes no seed words or labels."""
    if sampler not in ("auto", "gibbs"):
        raise DataError(
            f"seed_words and doc_labels need Gibbs sampling, not sampler={sampler!r}: set "
            "sampler='gibbs' or leave it 'auto'"
        )


def chosen(n_tokens, n_words, longest, n_topics, exact, max_sweeps):
    """What "auto" takes, of a corpus with a document of `longest` tokens at most.

    Returns
    -------
    str
        ``"gibbs"``, ``"both"``, which is warp and then Gibbs, or ``"warp"`` alone where lists cannot hold it.
    """
    from .document_rows import DENSE_TOPICS, PackedLists

    large = n_topics >= _LEAST_TOPICS and number_of_groups(n_tokens, n_words, n_topics) > 1
    if exact or not large or max_sweeps < _LEAST_SWEEPS:
        return "gibbs"
    return "both" if n_topics <= DENSE_TOPICS or PackedLists.hold(longest, n_topics) else "warp"


def settled(state, tol):
    """Make the rule that stops a fit: two likelihoods, measured one after the other, hardly differ.

    Under warp the likelihood first falls and then rises, and its turning point is no end: it counts from
    where it is above its first value. Annealed sweeps do not count. Where Gibbs sampling is
    to follow, nothing counts before.
    """
    if tol is None:
        return None

    def stop(history):
        if state.name == "auto" and len(state.ran) == 1:
            return False
        first = max(state.ran[-1]["sweep"] - 1, state.annealed)
        objective = history.as_dict()["objective"][first:]
        measured = objective[~np.isnan(objective)]
        if len(measured) < 2 or (state.ran[-1]["name"] == "warp" and measured[-1] <= measured[0]):
            return False
        return bool(abs(measured[-1] - measured[-2]) <= tol * abs(measured[-2]))

    return stop
