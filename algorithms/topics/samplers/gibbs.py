"""Collapsed Gibbs sampling with documents in shards and words in blocks that travel (`TopicProgram`).

Of its frequent words (`number_of_rows`) a block has the topic counts, packed on its way; of each other word
the topics of all its tokens.

Memory: a shard holds 8 bytes a token (topic 2, document 4, counts of rows in its blocks on average 2 to 4)
and the documents' counts (`document_rows`); a block 4 K bytes a frequent word and 2 a token of the others
(4 above 65,535 topics). With a background every word that occurs is a frequent one.
"""

import copy
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import gammaln

from ....errors import shortened
from ....kernels.lda import blocks as lda_blocks
from ....kernels.lda import counts as topic_counts
from ....kernels.lda import gibbs as kernels
from ....kernels.lda import host
from ....scheduler.program import is_built_in, is_built_in_class
from ..._streams import Purpose
from .. import priors
from ..blocks.averages import check_sums, is_added, weight_of
from ..blocks.document_rows import document_rows
from ..blocks.groups import check_frequency, number_of_rows
from ..blocks.program import csr_of_segments
from ..blocks.restoring import damaged, unfit
from ..blocks.storage import Storage
from ..blocks.word_blocks import Block, FirstCountThenRotate, Words, changes_of
from .annealing import FIRST_TOPICS, Priors, is_time_for_priors, starts_from_all
from .gibbs_steps import may_run_steps

_FORMAT_NAMES = {  # classes of version 0.2, whose checkpoints go on
    "Gibbs": "RotatingGibbs",
    "Warp": "RotatingWarp",
    "Light": "RotatingLight",
    "KeywordGibbs": "RotatingKeywords",
    "HierarchicalGibbs": "RotatingHierarchical",
    "CovariateGibbs": "RotatingRegression",
    "ResponseGibbs": "RotatingSupervised",
}


class Gibbs:
    """Draws each token's topic given those of all others; the base of other samplers of topics.

    `docs/add-a-sampler.md` shows a sampler of a user's own.

    Attributes
    ----------
    program : TopicProgram
        Of a copy that is `bound` to one, as all attributes below.
    schedule : FirstCountThenRotate
    barrier : str or int
        When changes of the topic totals are added up, see `Program`.
    words : Words
    """

    name = "gibbs"  # of a user's class its own in lower case, if it does not say
    counted_as = "gibbs"  # or "warp": what tokens take in memory, see `blocks.memory`
    can_be_exact = True  # with one shard, whether sweeps leave the posterior as it is; a user's class says so
    rows = "frequent"  # the words of which blocks keep rows of counts: frequent ones, "all" or "none"
    all_tokens = False  # whether blocks have the tokens of frequent words, too
    instead_of_saving = "; set_params(sampler='gibbs') first: a fitted model can do without"
    repeats = 1  # turns of the rotation a sweep
    prior_figures = "word_counts"  # figures with which priors are fitted after a sweep
    program: Any
    schedule: Any
    words: Words
    barrier: str | int

    def __init_subclass__(cls):
        """What a user's class does not say is not taken from the class that it changes."""
        if not is_built_in_class(cls):
            for name, value in {"name": cls.__name__.lower(), "can_be_exact": False}.items():
                if name not in vars(cls):
                    setattr(cls, name, value)

    def __repr__(self):
        """The class and its parameters."""
        own = {} if "program" in vars(self) else vars(self)
        return f"{type(self).__name__}({', '.join(f'{name}={shortened(own[name])}' for name in own)})"

    def bound(self, program, corpus):
        """Make a copy for the shards and words of a program."""
        bound = self.with_program(program)
        vars(bound).update(copy.deepcopy(vars(self)))
        bound.schedule = bound.rotation(len(corpus.shards), program.at_once)
        bound.barrier = bound.schedule.between
        n_kept = bound.number_of_rows(corpus.frequency, program.background)
        bound.words = Words(corpus.frequency, bound.schedule.n_blocks, n_kept, bound.all_tokens)
        return bound

    def with_program(self, program):
        """Make a shallow copy that is bound to a program; `copy` omits what workers do without."""
        bound = object.__new__(type(self))
        vars(bound).update(vars(self), program=program)
        return bound

    @property
    def format_name(self):
        """The name of the program in checkpoints."""
        kind = type(self)
        if not is_built_in(self):
            return f"{kind.__module__}.{kind.__qualname__}"
        return _FORMAT_NAMES.get(kind.__name__, kind.__name__)

    def rotation(self, n_shards, at_once):
        """Make the order in which blocks meet shards."""
        return FirstCountThenRotate(n_shards, at_once, self.repeats)

    def first_priors(self, alpha, beta, annealed):
        """Make the priors to begin with."""
        return Priors.of(alpha, beta, annealed, self.program.n_tokens)

    # Shards -------------------------------------------------------------------------------------------

    def document_kind(self, lengths, storage, facts=None):
        """Allocate the counts of documents; `facts` is what is known of them, here their labels."""
        program = self.program
        sizes = (lengths, program.longest, program.n_topics)
        return document_rows(*sizes, facts, storage, program.corpus.n_documents)

    def lay_out(self, shard, storage):
        """Make the first topics of the tokens."""
        program, inputs = self.program, shard.inputs
        topics = storage.zeros(len(shard.docs) - kernels.AHEAD, program.kind)
        if "topics" in inputs:
            topics[:] = inputs["topics"]
            return topics
        documents = (inputs["first_document"], len(shard.lengths), program.corpus.n_documents)
        choices = host.first_choices(*documents, program.seed, Purpose.CHOICES.value, 4)
        spread = starts_from_all(shard.lengths, program.annealed)
        firsts, starts = self.words.first_token + shard.offset, shard.starts.astype(np.int64)
        tokens = (starts, firsts, shard.docs, topics)
        chosen = choices[:, :FIRST_TOPICS]
        lda_blocks.assign_first(*tokens, program.n_topics, chosen, spread, program.seed, Purpose.ASSIGN.value)
        if "labels" in inputs:
            shard.documents.admit(shard.docs, topics)
        elif program.seeded is not None:
            seeds = program.seeded.of_all()
            lda_blocks.assign_seeded(starts, firsts, topics, seeds, program.seed, Purpose.SEED_WORDS.value)
        return topics

    def documents_of_tokens(self, shard):
        """Return the document of each token, for a shard that is begun again."""
        return shard.docs

    def make_ready(self, shard):
        """Count the topics of the documents, those of a snapshot if it is laid over."""
        topics, documents = shard.topics, shard.documents
        if topics.max(initial=0) >= self.program.n_topics:
            raise unfit("topics")
        arrays = documents.arrays()
        restored = any(shard.lists[name] is not array for name, array in arrays.items())
        docs, topics = self.tokens_in_order(shard)
        if restored:
            documents.restore(shard.lists, docs, topics)
            shard.lists |= documents.arrays()
        elif documents.fill(docs, topics):
            raise unfit("topics", "doc_labels")
        check_sums(shard.sums)

    def tokens_in_order(self, shard):
        """Documents and topics of the tokens by the number of the word: the order in which lists begin."""
        ranks, starts = np.argsort(self.words.ids), shard.starts
        order = host.tokens_between(starts[ranks], starts[ranks + 1])
        return shard.docs[order], shard.topics[order]

    def own_topics(self, shard, first, last):
        """Topics of a range of the shard's tokens."""
        return shard.topics[first:last]

    def receive(self, shard, message):
        """Take into a shard what the coordinator's side of the sampler published."""

    def before_sweep(self, shard, value):
        """Called before the first step of a sweep with a shard and the block that it has in this step."""

    def measure(self, shard):
        """Compute the part of a shard's documents for the log-likelihood."""
        alpha, lengths, documents = shard.priors.alpha, shard.lengths, shard.documents
        total = documents.log_likelihood(0, len(lengths), alpha)
        sums = documents.prior_sums(alpha)
        total += (gammaln(sums) - gammaln(lengths + sums)).sum()
        return float(total)

    # Blocks -------------------------------------------------------------------------------------------

    def number_of_rows(self, frequency, background):
        """Words that keep a row of counts, the most frequent ones."""
        check_frequency(frequency, 0 if background is None else int(background.data.max(initial=0)))
        if self.rows == "none":
            return 0
        if self.rows == "all" or background is not None:
            return np.count_nonzero(frequency)
        return number_of_rows(frequency, self.program.n_topics)

    def block(self, block):
        """A block without tokens: the first turn fills it."""
        program, words = self.program, self.words
        if program.background is not None:
            return Block(program.background_of(block), np.zeros(0, program.kind))
        tokens = program.block_storage().zeros(words.n_tokens[block], program.kind)
        return Block(program.rows_of_counts(words.n_rows[block]), tokens)

    def fill(self, shard, block, value):
        """Put the topics of a shard's tokens into a block; return the change of the totals."""
        starts, n_rows = self.starts_of(shard, block), self.words.n_rows[block]
        topics = self.own_topics(shard, starts[0], starts[-1])
        lda_blocks.add_rows(starts[: n_rows + 1] - starts[0], topics, value.rows)
        begin, end, first = self.places_of(shard, block)
        lda_blocks.put_own(begin[first:], end[first:], topics[starts[first] - starts[0] :], value.tokens)
        counted = np.bincount(topics, minlength=self.program.n_topics)
        return changes_of(np.zeros(self.program.n_topics, np.int64), counted)

    def pack(self, block, value):
        """Counts packed, tokens as they are; counts that follow from the tokens are left out."""
        rows = value.rows[:0] if self.all_tokens else value.rows
        packed = np.empty(lda_blocks.packed_size(*rows.shape) + value.tokens.nbytes, np.uint8)
        size = lda_blocks.pack_rows(rows, packed)  # of the rest no page is touched
        end = size + value.tokens.nbytes
        packed[size:end] = value.tokens.view(np.uint8)
        return packed[:end]

    def unpack(self, block, packed):
        """Undo `pack`; every topic and count is checked, for kernels trust them."""
        program, words = self.program, self.words
        span, n_rows = words.of(block), 0 if self.all_tokens else words.n_rows[block]
        rows = program.rows_of_counts(n_rows)
        # In one process they are of a snapshot.
        storage = program.block_storage() if program.streams else Storage()
        value = Block(rows, storage.zeros(words.n_tokens[block], program.kind))
        most = words.frequency[span][:n_rows]
        if program.background is not None:
            most = most + program.background[words.ids[span]].sum(axis=1, dtype=np.int64)
        size = len(packed) - value.tokens.nbytes if packed.dtype == np.uint8 and packed.ndim == 1 else -1
        fits = size >= 0 and lda_blocks.unpack_rows(packed[:size], rows, most)
        if fits:
            value.tokens.view(np.uint8)[:] = packed[size:]
        if not fits or value.tokens.max(initial=0) >= program.n_topics:
            raise damaged(block)
        return value

    def starts_of(self, shard, block):
        """Where a shard's tokens of each of a block's words begin, and where those of the last one end."""
        span = self.words.of(block)
        return shard.starts[span.start : span.stop + 1].astype(np.int64)

    def places_of(self, shard, block):
        """Where a shard's tokens of a block's words begin and end in `Block.tokens`; the first word there."""
        begin = self.words.bounds(block)[:-1] + shard.offset[self.words.of(block)]
        end = begin + np.diff(self.starts_of(shard, block))
        return begin, end, 0 if self.all_tokens else self.words.n_rows[block]

    def counts_of_block(self, block, value):
        """Topic counts of a block's words: CSR of those that keep a row, and of the others."""
        start = self.words.bounds(block)[len(value.rows) :]
        others = csr_of_segments(start, value.tokens, self.program.n_topics)
        background = 0 if self.program.background is None else self.program.background_of(block)
        return sparse.csr_array(value.rows - background), others

    def beta_of_words(self, beta, block):
        """The topic-word prior of a block's words."""
        return beta[self.words.ids[self.words.of(block)]]

    def word_part(self, block, value, beta):
        """Sum over the words of a block of lnG(C_wk + beta_w) - lnG(beta_w).

        Of counts on top of a background B it is lnG(B_wk + C_wk + beta_w) - lnG(B_wk + beta_w).
        """
        program, n_rows = self.program, len(value.rows)
        beta = self.beta_of_words(beta, block)
        background = None if program.background is None else program.background_of(block)
        row, topic = np.nonzero(value.rows)
        before = 0 if background is None else background[row, topic]
        both = gammaln(value.rows[row, topic] + beta[row]) - gammaln(before + beta[row])
        total = float(both.sum())
        start = self.words.bounds(block)[n_rows:]
        total += topic_counts.words(start, value.tokens, beta[n_rows:], program.n_topics)
        if program.seeded is not None:
            counts = sparse.vstack(self.counts_of_block(block, value), format="csr")
            total += program.seeded.log_likelihood(block, counts, beta, background)
        return total

    @property
    def bytes_of_blocks(self):
        """Bytes of all blocks."""
        program = self.program
        return self.words.bytes_of_blocks(program.n_topics, program.kind().itemsize)

    # Sampling -----------------------------------------------------------------------------------------

    def may_run_steps(self, shards):
        """Whether steps run in compiled code, without Python between their tasks."""
        plain = type(self).draw is Gibbs.draw and type(self).sweep is Gibbs.sweep
        # What a user's class changes besides, the compiled steps do not see.
        plain = plain and is_built_in(self) and all(is_built_in(shard.documents) for shard in shards)
        return plain and may_run_steps(self, shards)

    def draw(self, shard, task, totals):
        """Draw the shard's tokens of a block's words in place, and renew the block and the totals.

        Returns figures for `update`, a dict.
        """
        block, value = task.blocks, task.value
        starts, n_rows = self.starts_of(shard, block), self.words.n_rows[block]
        first, last = starts[0], starts[-1]
        topics, docs = shard.topics[first:last], shard.docs[first : last + kernels.AHEAD]
        begin, end = starts[:-1] - first, starts[1:] - first
        row = np.full(len(begin), -1, np.int32)
        row[:n_rows] = np.arange(n_rows)
        words, bounds = np.arange(len(begin), dtype=np.int32), self.words.bounds(block)
        tokens = (words, begin, end, bounds, docs, topics, value.tokens)
        self.sweep(shard, task, tokens, (row, value.rows, totals))
        if n_rows < len(words):
            into = (bounds[:-1] + shard.offset[self.words.of(block)])[n_rows:]
            until = into + (end - begin)[n_rows:]
            lda_blocks.put_own(into, until, topics[starts[n_rows] - first :], value.tokens)
        return {}

    def sweep(self, shard, task, tokens, words):
        """Draw tokens by the kernel of the documents' counts."""
        program, documents = self.program, shard.documents
        beta, beta_sum = shard.priors.beta_of(task.round)
        beta = self.beta_of_words(beta, task.blocks).astype(np.float32)
        priors_ = (documents.drawn_with(shard.priors.alpha), beta, np.float32(beta_sum))
        stream = (program.seed, Purpose.SWEEP.value, task.round, task.shard * program.n_blocks + task.blocks)
        seeds = None if program.seeded is None else program.seeded.of(task.blocks)
        documents.sweep(tokens, (*words, *priors_), (program.exact, *stream, seeds))

    def figures_after(self, shard, task, place):
        """End the sweep of a shard if a step is its last; return what the coordinator wants to know."""
        figures: dict = {}
        fits = self.fits_after(task.round + 1)
        if self.schedule.is_last_of_shard(place):
            self.end_sweep(shard, task)
            if fits:
                figures |= self.figures_of_documents(shard)
            self.program.put_away(shard)
        if self.schedule.may_be_last_of_block(place):
            if (task.round + 1) % self.program.measure_every == 0:
                figures["word_part"] = self.word_part(task.blocks, task.value, shard.priors.beta)
            if fits:
                figures |= self.figures_of_words(shard, task.blocks, task.value)
        return figures

    def end_sweep(self, shard, task):
        """Tidy the documents' counts, and add them to their sums."""
        documents = shard.documents
        documents.tidy(0, len(shard.lengths))
        if shard.sums is not None and is_added(task.round, documents.sweeps_between(len(shard.topics))):
            documents.add_to(shard.sums, weight_of(task.round))

    def figures_of_documents(self, shard):
        """Figures for new priors: how often each count occurs, or, of labelled documents, all counts."""
        if self.program.labelled:
            return {"document_counts": self.program.document_counts(shard)}
        counts, lengths = priors.tally(shard.documents.csr()), priors.tally_values(shard.lengths)
        return {"document_counts": counts, "lengths": lengths}

    def figures_of_words(self, shard, block, value):
        """Figures for new priors: how often each count occurs, or, with seed words, all counts."""
        counts = self.counts_of_block(block, value)
        if self.program.seeded is not None:
            return {"word_counts": counts}
        return {"word_counts": priors.tally_values(np.concatenate([part.data for part in counts]))}

    # At the coordinator -------------------------------------------------------------------------------

    def fits_after(self, swept):
        """Whether `fit` is called when so many sweeps are done."""
        return self.program.fits_priors and is_time_for_priors(swept)

    def publish(self):
        """Return what `fit` has changed, for shards: priors, where they are fitted."""
        program = self.program
        return {"alpha": program.alpha, "beta": float(program.beta[0])} if program.fits_priors else {}

    def update(self, names, swept):
        """Take in the figures of a sweep, of these names; return a message to shards, or None."""
        if self.prior_figures not in names:
            return None
        self.fit(swept)
        return self.publish()

    def fit(self, swept):
        """Fit the priors, given the figures of all shards and blocks."""
        program = self.program
        documents = [figures.pop("document_counts") for figures in program.shard_figures]
        words = [figures.pop("word_counts") for figures in program.block_figures]
        if program.labelled:
            counts = program.in_order_of_X(documents)
            alpha = priors.fit_doc_topic_prior(counts, program.alpha, labels=program.labels)
        else:
            lengths = priors.merged([figures["lengths"] for figures in program.shard_figures])
            alpha = priors.fit_tallied_doc_topic_prior(priors.merged(documents), lengths, program.alpha)
        beta, seeds = program.beta[0], program.seeds
        if seeds is not None:
            counts = program.word_counts([part for block in words for part in block])
            fit_beta = lambda: priors.fit_topic_word_prior(counts, beta, seeds=seeds)  # noqa: E731
            program.priors = program.priors.fitted(alpha, fit_beta, swept)
            program.word_part = priors.seeded_word_part(counts, program.beta[0], seeds)
            return
        counts, times = merged = priors.merged(words)
        model = (program.totals, program.corpus.n_words, beta)
        program.priors = program.priors.fitted(
            alpha, lambda: priors.fit_tallied_topic_word_prior(merged, *model), swept
        )
        beta = program.beta[0]
        program.word_part = float((times * (gammaln(counts + beta) - gammaln(beta))).sum())

    def log_likelihood(self, document_parts, word_part):
        """Compute log p(w, z) per token; with a background, of it given the background."""
        program = self.program
        beta = program.beta.sum() + (0 if program.seeded is None else program.seeded.sums)
        total = sum(document_parts) + word_part
        total += (gammaln(program.background_totals + beta) - gammaln(program.totals + beta)).sum()
        return float(total / program.n_tokens)

    def completed(self, gathered):
        """Add to a model that is read what is the sampler's own."""
        return gathered

    def arrays(self):
        """Arrays of a checkpoint, of the coordinator's side."""
        return {}

    def restore(self, arrays):
        """Go on from the arrays of a checkpoint, which may come from a file."""
