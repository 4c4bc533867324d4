"""The table of topic models beside other systems says what the records say."""

from stradask.benchmarks.experiments import parts


def a_run(solver, perplexities, ours):
    return {
        "solver": solver,
        "ours": ours,
        "status": "ok",
        "repeat": 0,
        "work": 3000,
        "training_seconds": 4.0,
        "data": {"name": "docword.tales.txt.gz", "train_tokens": 1000},
        "settings": {"n_components": 1000, "doc_topic_prior": 0.05, "n_jobs": 2, "optimize_priors": True},
        "metrics": [{"key": "held_out_perplexity", "label": "held-out perplexity", "lower_is_better": True}],
        "snapshots": [
            {"seconds": second, "held_out_perplexity": value}
            for second, value in enumerate(perplexities, start=1)
        ],
    }


def test_the_times_are_those_to_the_peers_last_value_and_half_a_per_cent():
    records = [a_run("peer", [400, 300, 202, 200], False), a_run("stradask", [202, 190, 180, 100], True)]
    (row,) = parts.goals(records)
    # 201 lies half way between the peer's 202 and 200, and 1/12 of the way from our 202 to 190
    assert row[:5] == ("tales, 0.0 M tokens, fitted priors", "1,000", "0.05", "2", "peer, 3 sweeps")
    assert row[5:] == ("201", "3.5", "1.08", "0.31", "100", "200")
