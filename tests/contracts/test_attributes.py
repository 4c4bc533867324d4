"""Reading an attribute talks to no network, computes nothing that fails, and raises AttributeError alone."""

import contextlib

import pytest
from contract_cases import cases, short_fits

dask = pytest.importorskip("dask")


@pytest.mark.parametrize("case", cases("attributes"))
def test_reading_an_attribute_asks_nobody(case, client, monkeypatch):
    new = case.make()
    if case.takes("engine", "__init__"):
        new.set_params(engine=client)
    models = [case.make(), new, case.fitted]

    def refuse(*args, **options):
        raise ConnectionError("an attribute asked the cluster")

    for name in ("__init__", "sync", "scheduler_info"):
        monkeypatch.setattr(type(client), name, refuse)
    with client.as_current(), dask.config.set({"stradask.coordinator": "nonsense"}), short_fits():
        for model in models:
            for name in dir(model):
                with contextlib.suppress(AttributeError):
                    getattr(model, name)
            assert callable(model.fit)
