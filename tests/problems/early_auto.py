"""An "auto" that is over with annealing and warp after few sweeps, and takes warp for few topics, too."""


def make_early(monkeypatch, gibbs_topics=63, annealed=3, most=6):
    """Let "auto" anneal `annealed` sweeps and take Gibbs sampling after `most`."""
    samplers = "stradask.algorithms.topics.samplers"
    monkeypatch.setattr(f"{samplers}.choose.GIBBS_TOPICS", gibbs_topics)
    monkeypatch.setattr(f"{samplers}.annealing.ANNEALED_PASSES", 4 * annealed)
    monkeypatch.setattr("stradask.algorithms.topics.samplers.auto.WARP_SWEEPS", most)
