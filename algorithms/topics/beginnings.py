"""Where a fit begins: at random, from topics, or on top of the counts of a fitted model."""

from typing import Any

import numpy as np

from .blocks.draws import ThinnedDraws
from .corpus.documents import groups_asked_for
from .growing import AveragedDraws, YoungPriors, add_topics, add_words, check_forget, forgotten
from .samplers.choose import annealed_of, fits_shards, program_of, state_of_one_piece


class FreshStart:
    """Tokens begin in topics at random, and the first sweeps are annealed.

    Attributes
    ----------
    counts : CSR array of shape (n_words, n_topics) or None
        Those of the model that the fit goes on from.
    adds : bool
        Whether documents are added to `counts`.
    in_parts : bool
        Whether the corpus comes in parts, so that counts of words are means over sweeps.
    keeps_checkpoint : bool
    """

    counts: Any = None
    adds = False

    def __init__(self, in_parts=False, keeps_checkpoint=True):
        self.in_parts, self.keeps_checkpoint = in_parts, keeps_checkpoint

    def prepare(self, model, X, inputs):
        """Make the model ready for documents; return these."""
        return X

    def sampler(self, documents, inputs):
        """Return the sampler, or the name of a program."""
        return documents.sampler(inputs.needs_gibbs)

    def draws(self, model, sweeps):
        """Return what keeps draws after these sweeps, or None."""
        if self.in_parts and (self.adds or not model._finds_number):
            return AveragedDraws(sweeps, model.max_iter)
        return ThinnedDraws(sweeps) if sweeps else None

    def program(self, model, documents, inputs, sampler, priors, seed, averages):
        """Make the program."""
        anneals = inputs.seeds is None and inputs.labels is None and not model.exact
        sweeps = model.max_iter if model.n_draws else None
        options = {"averages": averages, "annealed": annealed_of(sampler, sweeps) if anneals else 0}
        options |= documents.options(sampler)
        return _program(model, documents, documents.corpus, inputs, sampler, priors, seed, options)


class FromTopics(FreshStart):
    """Tokens draw their first topics given topics of the caller, or `counts` of the last fit."""

    def __init__(self, counts=None):
        super().__init__()
        self.counts = counts

    def program(self, model, documents, inputs, sampler, priors, seed, averages):
        """Draw first topics, and make the program."""
        from .blocks.at_hand import FirstTopics, tokens_of, with_first_topics
        from .samplers.gibbs import Gibbs

        corpus, options = documents.corpus, documents.options(sampler, "gibbs")
        if self.counts is None:
            topics = {"seeds": inputs.topics * float(sum(corpus.weights))}
        else:
            topics = {"seeds": inputs.seeds, "background": forgotten(self.counts, 0.0, seed)[1]}
        options_then: dict = options | topics | {"sampler": Gibbs()}
        alpha, beta = priors
        first = FirstTopics(corpus, len(alpha), alpha, beta, derived(seed, 0), **options_then)
        drawn = with_first_topics(documents.checked(first), corpus, documents.engine, documents.n_jobs)
        options |= {"averages": averages, "annealed": 0}
        program = _program(model, documents, drawn, inputs, sampler, priors, seed, options)
        if not fits_shards(sampler, model.device):
            program.begin_from_tokens(*tokens_of(first, drawn))
        return program


class AddDocuments(FreshStart):
    """Documents are added to a fitted model, whose counts stay as they are but for what is forgotten."""

    adds = True

    def __init__(self, forget, grow):
        super().__init__(check_forget(forget, 1, 1)[1], keeps_checkpoint=False)
        self.forget, self.grow = forget, grow

    def prepare(self, model, X, inputs):
        """Give the model new topics and words; return the documents with the model's columns."""
        add_topics(model, self.grow)
        if inputs.vocabulary is not None:
            X, inputs.vocabulary = add_words(model, X, inputs.vocabulary), None
        self.counts = model.word_topic_counts_
        return X

    def sampler(self, documents, inputs):
        """Gibbs sampling."""
        return "gibbs"

    def program(self, model, documents, inputs, sampler, priors, seed, averages):
        """Make the program, with the counts of before as a background."""
        n_new, n_old = sum(documents.corpus.weights), float(self.counts.sum())
        part, is_young = check_forget(self.forget, n_new, n_old)
        seed, options = derived(seed, model.n_batch_iter_), documents.options(sampler)
        self.counts, options["background"] = forgotten(self.counts, part, seed)
        options["seeds"] = vars(model).get("seed_prior_")
        program = program_of(sampler, documents.corpus, len(priors[0]), *priors, seed, **options)
        if is_young:
            program.priors = YoungPriors.of_model(priors[0], priors[1], n_new, n_old)
        return documents.checked(program)


def _program(model, documents, corpus, inputs, sampler, priors, seed, options):
    """Make a program over shards, or the state of a sampler that holds the corpus in one piece."""
    options["fits_priors"] = model.optimize_priors
    if fits_shards(sampler, model.device):
        if sampler == "gibbs":
            options["seeds"] = inputs.seeds
        return documents.checked(inputs.program(model, corpus, sampler, *priors, seed, options))
    names = ("fits_priors", "averages", "annealed")
    options = {name: options[name] for name in names} | {"folder": model.memmap_folder}
    options |= {"n_groups": groups_asked_for(model, documents.X), "n_jobs": documents.n_jobs}
    whole = (sampler, documents.X, len(priors[0]), *priors, seed)
    return state_of_one_piece(*whole, device=model.device, exact=model.exact, **options)


def derived(seed, number):
    """Return another seed that follows from a seed."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0])
