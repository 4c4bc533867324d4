"""Which sampler a topic model runs, and when its chain has settled."""

import numpy as np

from ....errors import DataError
from ....kernels.cuda.device import device_for
from ..blocks.groups import number_of_groups
from ..blocks.list_layout import DENSE_TOPICS, ListRoom
from ..rules import GIBBS_MOST_TOPICS, GIBBS_TOKENS, GIBBS_TOPICS, WARP_PASSES
from .annealing import annealed_sweeps


def fits_shards(sampler, device):
    """Whether a sampler runs over shards and blocks: all but those that hold the corpus in one piece."""
    return sampler != "saber" and not (sampler == "light" and device == "cuda")


def annealed_of(name, sweeps=None):
    """How many first sweeps of a sampler are annealed, by the name that `chosen` gives.

    `sweeps` are those of a fit that keeps draws from its end: at most half of them are annealed.
    """
    return annealed_sweeps({"warp": 1, "both": WARP_PASSES}.get(name), sweeps)


def program_of(name, corpus, n_topics, *model, sweeps=None, **options):
    """Make a program over shards, of a sampler or by the name that `chosen` gives; numba is imported here."""
    from ..blocks.program import TopicProgram
    from .auto import Handover
    from .gibbs import Gibbs
    from .light import Light
    from .warp import Warp

    if name == "both":
        options |= {"sampler": (Warp(WARP_PASSES), Gibbs()), "handover": Handover(n_topics, sweeps)}
    elif isinstance(name, str):
        options["sampler"] = {"gibbs": Gibbs, "light": Light, "warp": Warp}[name]()
    else:
        options["sampler"] = name
    return TopicProgram(corpus, n_topics, *model, **options)


def counted_as(sampler, corpus, n_topics):
    """The name by which the memory of a sampler is counted, and of an object the class of its documents."""
    if isinstance(sampler, str):
        return sampler, None
    program = program_of(sampler, corpus, n_topics, np.ones(n_topics), np.ones(corpus.summary.n_words), 0)
    return program.counted_as, program.documents


def state_of_one_piece(sampler, *model, device, exact, **options):
    """The state of a sampler that holds the corpus in one piece; no numba is imported where a GPU draws."""
    if sampler == "saber":
        from .saber import SaberState

        return SaberState(*model, device=device_for(device), **options)
    from .light_cuda import LightCudaState

    return LightCudaState(*model, device=device_for(device), exact=exact, **options)


def check_knows(sampler):
    """Refuse a sampler that takes no seed words or labels."""
    if sampler not in ("auto", "gibbs"):
        raise DataError(
            f"seed_words and doc_labels need Gibbs sampling, not sampler={sampler!r}: set "
            "sampler='gibbs' or leave it 'auto'"
        )


def chosen(n_tokens, n_words, longest, n_topics, exact):
    """Name what "auto" takes, of a corpus with a document of `longest` tokens at most.

    It is ``"gibbs"``, ``"both"`` (warp and then Gibbs), or ``"warp"`` alone where lists cannot hold it.
    """
    if exact or number_of_groups(n_tokens, n_words, n_topics) == 1:
        return "gibbs"
    if n_topics > DENSE_TOPICS and not ListRoom.hold(longest, n_topics):
        return "warp"
    small_topics = n_topics <= GIBBS_MOST_TOPICS and n_tokens < GIBBS_TOKENS * n_topics
    return "gibbs" if n_topics <= GIBBS_TOPICS or small_topics else "both"


def settled(program, tol):
    """Make the rule that stops a fit: two likelihoods, measured one after the other, hardly differ.

    Under warp the likelihood first falls and then rises, and its turning point is no end: it counts from
    where it is above its first value. Annealed sweeps do not count. Where Gibbs sampling is
    to follow, nothing counts before.
    """
    if tol is None:
        return None

    def stop(history):
        if program.name == "auto" and len(program.ran) == 1:
            return False
        first = max(program.ran[-1]["sweep"] - 1, program.annealed)
        objective = history.as_dict()["objective"][first:]
        measured = objective[~np.isnan(objective)]
        lags = "warp" in (program.ran[-1]["name"], getattr(program, "counted_as", ""))
        if len(measured) < 2 or (lags and measured[-1] <= measured[0]):
            return False
        return bool(abs(measured[-1] - measured[-2]) <= tol * abs(measured[-2]))

    return stop
