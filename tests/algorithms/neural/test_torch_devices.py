"""Torch estimators on devices."""

import numpy as np
import pytest
from torch_nets import classifier, torch

from stradask.algorithms.neural.training.torch_stage import TorchStage
from stradask.algorithms.neural.training.torch_workers import chosen_device
from stradask.errors import DataError, DeviceError


def test_a_device_has_copies_and_gives_the_same(data, one, monkeypatch):
    """Without a GPU: "cpu:0" takes all steps of one."""
    from stradask.algorithms.neural.training import torch_workers

    monkeypatch.setattr(torch_workers, "chosen_device", lambda device, gpus: "cpu:0")
    copies, changed = [], TorchStage.changed

    def watched(self):
        copies.append(self._bound._leaves.tensors[0])
        changed(self)

    monkeypatch.setattr(TorchStage, "changed", watched)
    model = classifier(device="cuda").fit(*data)
    assert np.array_equal(model.weights_, one.weights_)
    assert len({copy.data_ptr() for copy in copies}) == len(copies) == 4 * 4  # one for each step
    assert np.array_equal(model.predict_proba(data[0]), one.predict_proba(data[0]))
    for order, plan in (("1f1b", [("0:2", 1), ("2:", 1)]), ("pipedream", [("0:2", 1), ("2:", 1)])):
        micro = 1 if order == "pipedream" else 4
        options = {"order": order, "plan": plan, "micro_batches": micro}
        on_device = classifier(device="cuda", **options).fit(*data)
        with monkeypatch.context() as patch:
            patch.setattr(torch_workers, "chosen_device", lambda device, gpus: "cpu")
            assert np.array_equal(on_device.weights_, classifier(**options).fit(*data).weights_)


@pytest.mark.parametrize(
    ("device", "gpus", "chosen"),
    [
        ("cpu", {}, "cpu"),
        ("auto", {"a": 1, "b": 2}, "cuda"),
        ("auto", {"a": 1, "b": "torch finds none"}, "cpu"),
        ("cuda", {"a": 1}, "cuda"),
        ("cuda:1", {"a": 2}, "cuda:1"),
        ("cuda:1", {"a": 1}, r"device='cuda:1', but torch has no such GPU in a \(it has 1 of them"),
        ("cuda", {"a": 1, "b": "torch finds none"}, r"in b \(torch finds none\): set device='cpu'"),
        ("gpu", {}, "device must be 'cpu', 'cuda', 'cuda:0'.* got 'gpu'"),
        ("cuda:x", {}, "device must be"),
        ("cpu:1", {}, "device must be"),
    ],
)
def test_devices_are_chosen_by_what_all_places_have(device, gpus, chosen):
    if chosen.startswith(("cpu", "cuda")):
        assert chosen_device(device, gpus) == chosen
    else:
        with pytest.raises((DataError, DeviceError), match=chosen):
            chosen_device(device, gpus)


@pytest.mark.cluster
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_named(data, address):
    for engine, place in (("local", "this process"), (address, "worker tcp")):
        with pytest.raises(DeviceError, match=f"device='cuda', but torch has no such GPU in {place}"):
            classifier(device="cuda", engine=engine).fit(*data)
    assert np.array_equal(
        classifier(device="auto", engine=address, plan="data").fit(*data).weights_,
        classifier(plan="data").fit(*data).weights_,
    )
