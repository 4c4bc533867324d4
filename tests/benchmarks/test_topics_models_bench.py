"""``stradask bench topics-models``: its judge against a sum by hand, and a quick run."""

import json

import numpy as np
import pytest
from scipy import sparse

import stradask as sd
from stradask.benchmarks.comparisons import topics_models
from stradask.cli.arguments import main


def test_documents_are_judged_with_their_own_priors():
    X = sparse.csr_array(topics_models.generated(0, quick=True).X[:20])
    rng = np.random.default_rng(0)
    phi = rng.dirichlet(np.full(X.shape[1], 0.5), 3)
    priors = np.where(np.arange(20)[:, None] % 2, [0.1, 0.5, 2.0], [1.0, 0.3, 0.2])
    observed, held_out = sd.datasets.split_tokens(X, random_state=5)
    total = 0.0
    for row, alpha in enumerate(priors):
        theta, n = np.full(3, 1 / 3), observed[[row]].toarray()[0]
        for _ in range(20):
            weights = theta[:, None] * phi
            theta = (weights / weights.sum(axis=0) * n).sum(axis=1) + alpha
            theta /= theta.sum()
        total += held_out[[row]].toarray()[0] @ np.log(theta @ phi)
    found = topics_models.perplexity(phi, priors, X, 5)
    np.testing.assert_allclose(found, np.exp(-total / held_out.sum()), rtol=1e-4)


@pytest.mark.slow
def test_a_quick_run_has_a_row_for_each_task(tmp_path, capsys):
    out = tmp_path / "out"
    assert (
        main(
            [
                "bench",
                "topics-models",
                "--quick",
                "--dataset",
                "generated",
                "--against",
                "tomotopy",
                "--out",
                str(out),
            ]
        )
        == 0
    )
    shown = capsys.readouterr().out
    records = [json.loads(line) for line in (out / "records.jsonl").read_text().splitlines()]
    own = [record for record in records if record["system"] == "stradask"]
    assert [record["task"] for record in own] == list(topics_models.TASKS)
    figures = {record["task"]: record for record in own}
    for task, record in figures.items():
        assert f"{task}, stradask" in shown
        assert record.get("perplexity", 0) < 120
    assert "r2" in figures["response"]
    assert figures["short texts"]["information"] > 0.9
    assert figures["mixed short texts"]["information"] > 0.7
    assert main(["bench", "topics-models", "--quick", "--against", "mallet"]) == 2
