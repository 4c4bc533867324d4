"""Which sampler a topic model runs, and when its chain has settled."""

import numpy as np

from ....errors import DataError
from ....kernels.cuda.device import device_for
from ..blocks.groups import number_of_groups
from ..blocks.list_layout import DENSE_TOPICS, ListRoom
from ..rules import GIBBS_MOST_TOPICS, GIBBS_TOKENS, GIBBS_TOPICS
from .annealing import annealed_sweeps


def fits_shards(sampler, device):
    """Whether a sampler runs over shards and blocks: all but those that hold the corpus in one piece."""
    return sampler != "saber" and not (sampler == "light" and device == "cuda")


def program_of(name):
    """The class of a program over shards, by the name that `chosen` gives; numba is imported here."""
    from .auto import RotatingAuto
    from .gibbs import RotatingGibbs
    from .light import RotatingLight
    from .warp import RotatingWarp

    return {"gibbs": RotatingGibbs, "light": RotatingLight, "warp": RotatingWarp, "both": RotatingAuto}[name]


def annealing_of(name, anneals, sweeps=None):
    """Options of a program for the annealing of its first sweeps.

    `sweeps` are those of a fit that keeps draws from its end: at most half of them are annealed.
    """
    if name == "both":
        return {"anneals": anneals, "sweeps": sweeps}
    return {"annealed": annealed_sweeps(1 if name == "warp" else None, sweeps) if anneals else 0}


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
        if len(measured) < 2 or (program.ran[-1]["name"] == "warp" and measured[-1] <= measured[0]):
            return False
        return bool(abs(measured[-1] - measured[-2]) <= tol * abs(measured[-2]))

    return stop
