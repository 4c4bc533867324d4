"""How long first sweeps are annealed, and which sampler "auto" takes: the numbers that were measured.

None of them depends on `max_iter`: the chain of a shorter fit is the beginning of that of a longer one.
``python -m stradask.benchmarks.experiments.topics.topic_rules`` measures, on real corpora, the CPU time in
which each way reaches the same held-out perplexity. With ``--write`` it renews the record in
``benchmarks/results/topic-rules``; docs/topics.md has its table.
"""

ANNEALED_SWEEPS = 80  # of Gibbs sampling and others: 40 and 140 were tried on three corpora
ANNEALED_OF_MORE = 40  # sweeps at most, of models that fit further parameters: half of the others
ANNEALED_PASSES = 150  # pairs of warp, of which each does about a quarter of what a Gibbs sweep does

# Up to so many topics "auto" is Gibbs sampling; above, and up to the second number, where a topic has fewer
# tokens than the third on average. With 88 to 167 tokens a topic Gibbs sampling took .66 to 1.1 of the CPU
# time of warp with 1,500 topics, .66, .71 and 1.39 with 3,000; with 330 to 400 (1,000 topics) 1.06 to 1.39.
GIBBS_TOPICS, GIBBS_MOST_TOPICS, GIBBS_TOKENS = 700, 3_000, 250
WARP_PASSES = 4  # pairs of passes a sweep of "auto": they do what a Gibbs sweep does
WARP_SWEEPS = 150  # of "auto"; then Gibbs sweeps, whose counts are live. Going over sooner, at 43, lost time
