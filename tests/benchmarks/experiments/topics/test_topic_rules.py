"""The record of the rule that chooses a sampler of topics, and the command that renews it."""

import json

import numpy as np
import pytest

from stradask import datasets
from stradask.benchmarks.experiments.topics.topic_rules import (
    HALVES,
    RECORD,
    TOPICS,
    WAYS,
    main,
    over_the_fastest,
    seconds_to,
)


def test_the_rule_is_near_the_fastest_way_on_the_half_that_it_was_not_learned_on():
    rows = [json.loads(line) for line in RECORD.read_text().splitlines()]
    for half in HALVES:
        own = [row for row in rows if row["half"] == half]
        assert {row["topics"] for row in own} == set(TOPICS)
        ratios = np.array([over_the_fastest(row)[1] for row in own])
        assert np.median(ratios) <= 1.1
        assert ratios.max() <= 1.3
    assert {row["corpus"] for row in rows if row["half"] == HALVES[0]}.isdisjoint(
        row["corpus"] for row in rows if row["half"] == HALVES[1]
    )


def test_seconds_are_between_two_states_by_logarithms():
    seconds, perplexities = np.array([1.0, 4.0, 16.0]), np.array([400.0, 100.0, 25.0])
    assert seconds_to(500.0, seconds, perplexities) == 1.0
    assert seconds_to(200.0, seconds, perplexities) == pytest.approx(2.0)
    assert seconds_to(25.0, seconds, perplexities) == pytest.approx(16.0)


def test_a_row_for_each_corpus_and_number_of_topics(tmp_path, capsys, monkeypatch):
    record = tmp_path / "rules" / "records.jsonl"
    monkeypatch.setattr("stradask.benchmarks.experiments.topics.topic_rules.RECORD", record)
    paths = []
    for name in ("b", "a"):
        X = datasets.make_lda_corpus(300, 200, 5, mean_length=40, random_state=0)[0]
        paths.append(tmp_path / f"docword.{name}.txt")
        datasets.save_uci_bow(X, paths[-1])
    main([str(paths[0]), f"{paths[1]}:9", "--topics", "4", "--sweeps", "6", "--tokens", "5000", "--write"])
    rows = [json.loads(line) for line in record.read_text().splitlines()]
    assert [(row["corpus"], row["half"]) for row in rows] == [
        ("docword.a in 9 words.txt", "learned"), ("docword.b.txt", "shown")
    ]  # fmt: skip
    for row in rows:
        assert 4000 < row["tokens"] <= 5000
        assert (row["longest"] == 9) == ("in 9" in row["corpus"])
        for way in WAYS:
            assert row[way]["seconds_at_end"] >= row[way]["seconds"] > 0
            assert min(row[way]["trace"][1]) <= row["target"]
    assert len(capsys.readouterr().out.splitlines()) == 3
