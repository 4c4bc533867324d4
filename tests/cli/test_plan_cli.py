"""``stradask plan lda`` prints the plan of Python."""

import json

import pytest

import stradask as sd
from stradask.cli.arguments import main

SIZES = ["--tokens", "4e9", "--vocabulary", "1e5", "--topics", "1e4"]


def test_the_command_prints_the_plan(capsys):
    options = ["--machines", "4", "--memory", "16GB", "--disk", "2GB/s", "--network", "25Gbit/s"]
    options += ["--sampler", "light", "--sweeps", "50", "--documents", "2e7", "--threads", "8"]
    assert main(["plan", "lda", *SIZES, *options]) == 0
    plan = sd.plan_lda(
        10_000, n_tokens=4e9, n_words=1e5, n_machines=4, memory="16GB", disk="2GB/s", network="25Gbit/s",
        sampler="light", max_iter=50, n_documents=2e7, n_threads=8,
    )  # fmt: skip
    assert capsys.readouterr().out == f"{plan}\n"
    assert main(["plan", "lda", *SIZES, *options, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == plan.as_dict()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lda", *SIZES[:4]], "arguments are required: --topics"),
        (["lda", "--topics", "ten"], "'ten' is not a whole number of 1 or more, such as 2e11"),
        (["lda", "--topics", "1e3"], "n_tokens is missing"),
        (["lda", *SIZES, "--network", "10Gb/s"], "network='10Gb/s' is no rate above zero"),
        (["lda", *SIZES, "--files", "x"], "leave out n_tokens, n_words"),
        (["lasso"], "invalid choice"),
    ],
)
def test_mistakes_are_told(words, said, capsys):
    try:
        status = main(["plan", *words])
    except SystemExit as end:
        status = end.code
    assert status == 2
    assert said in capsys.readouterr().err
