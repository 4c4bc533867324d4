"""Gradients of chains that share passes: every way is timed, in both precisions."""

from stradask.benchmarks.experiments.mcmc.shared_passes import main


def test_a_table_for_each_precision(capsys):
    main(["--rows", "300", "--columns", "3", "--turns", "1", "--seconds", "0.001"])
    out = capsys.readouterr().out
    assert "300 x 3, float64" in out
    assert "300 x 3, float32" in out
    assert out.count("4 a pass, team of 2") == 2
