"""Shares of the machine: what bounds a kernel, by hand, and that kernels run and count what they say."""

import argparse

import pytest

from stradask.benchmarks import command, kernel_shares, run
from stradask.errors import DataError


def kernel(**needs):
    least = {"bytes": 0, "places": 0, "table": 0, "operations": 0} | needs
    return kernel_shares.Kernel("k", "units", lambda parts: None, **least)


def test_the_largest_of_three_times_is_the_bound():
    ceilings = {"bytes": 10e9, "places": 100e6, "operations": 20e9}
    # 8 bytes take 0.8 ns, 4 operations 0.2 ns; 500 million units a second take 2 ns each.
    reached, bound = kernel_shares.share(kernel(bytes=8, operations=4), 500e6, ceilings)
    assert (round(reached, 9), bound) == (0.4, "reading")
    reached, bound = kernel_shares.share(kernel(bytes=8, places=2), 25e6, ceilings)
    assert (round(reached, 9), bound) == (0.5, "reaching")
    reached, bound = kernel_shares.share(kernel(bytes=8, operations=40), 100e6, ceilings | {"places": None})
    assert (round(reached, 9), bound) == (0.2, "multiplying")


def test_the_sentence_has_the_range_of_both_types():
    ceilings = [
        {"bytes": read, "places": places, "operations": operations}
        for read, places, operations in ((10e9, None, 90e9), (12e9, 50e6, 90e9), (11e9, None, 40e9))
    ]
    records = [{"machine": {"processor": "P"}, "ceilings": found} for found in ceilings]
    assert "reads 10.0 to 12.0 GB/s, multiplies 40 to 90 G operations" in kernel_shares.setting(records)


def test_every_kind_of_kernel_is_there():
    names = " ".join(kernel.name for kernel in kernel_shares.kernels())
    for part in ("gibbs", "warp", "light", "dense float32", "CSR", "Lasso scores, dense", "sgd", "als"):
        assert part in names
    assert all(k.bytes or k.places or k.operations for k in kernel_shares.kernels())
    assert all((k.places > 0) == (k.table > 0) for k in kernel_shares.kernels())


def test_a_pass_and_a_fit_are_timed(monkeypatch):
    monkeypatch.setattr(kernel_shares, "LEAST_SECONDS", 1e-4)
    by_name = {kernel.name: kernel for kernel in kernel_shares.kernels()}
    for name, units in (("Lasso scores, CSC", 80_000), ("factors, sgd", None)):
        run, once = by_name[name].make(50)
        found, seconds = run()
        assert seconds > 0
        assert units is None or once == units
        assert found % once == 0
        assert found > 0


def test_the_command_writes_records_table_and_page(tmp_path, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    cheap = [k for k in kernel_shares.kernels() if k.name in ("GLM pass, dense float32", "Lasso scores, CSC")]
    cheap.append(cheap[0]._replace(name="left out", make=None, quick=False))
    monkeypatch.setattr(kernel_shares, "kernels", lambda: cheap)
    monkeypatch.setattr(kernel_shares, "QUICK", 40)
    monkeypatch.setattr(kernel_shares, "LEAST_SECONDS", 1e-3)
    parser = argparse.ArgumentParser()
    run.add_arguments(parser)
    assert command.main(parser.parse_args(["ceilings", "--quick", "--out", str(tmp_path)])) == 0
    records = run.read_records(tmp_path / "records.jsonl")
    assert [record["kernel"] for record in records] == [k.name for k in cheap[:2]]
    assert all(record["share"] > 0 and record["rate"] > 0 for record in records)
    assert "Lasso scores, CSC" in capsys.readouterr().out
    assert "Lasso scores, CSC" in (tmp_path / "report.html").read_text()
    with pytest.raises(DataError, match="--against: ceilings measures this machine"):
        command.main(parser.parse_args(["ceilings", "--against", "sklearn"]))
