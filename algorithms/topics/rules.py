"""How long first sweeps are annealed, and which sampler "auto" takes: the numbers that were measured.

None of them depends on `max_iter`: the chain of a shorter fit is the beginning of that of a longer one.
``python -m stradask.benchmarks.experiments.topics.topic_rules`` measures, on real corpora, the CPU time in
which each way reaches the same held-out perplexity. With ``--write`` it renews the record in
``benchmarks/results/topic-rules``; docs/topics.md has its table.
"""

ANNEALED_SWEEPS = 80  # of Gibbs sampling and others: 40 and 140 were tried on three corpora
ANNEALED_PASSES = 150  # pairs of warp, of which each does about a quarter of what a Gibbs sweep does

GIBBS_TOPICS = 700  # up to so many topics "auto" is Gibbs sampling: the faster way at 512, not at 1,000
WARP_PASSES = 4  # pairs of passes a sweep of "auto": they do what a Gibbs sweep does
WARP_SWEEPS = 150  # of "auto"; then Gibbs sweeps, whose counts are live. Going over sooner, at 43, lost time
