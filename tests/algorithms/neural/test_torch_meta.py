"""Torch modules on the meta device, whose parameters places draw."""

import numpy as np
import pytest
from torch_nets import classifier, nn, torch, undrawn_net

import stradask as sd
from stradask.errors import DataError


@pytest.mark.cluster
def test_places_draw_the_parameters_of_a_module_on_the_meta_device(data, address, tmp_path):
    model = classifier(undrawn_net).fit(*data)
    for options in (
        {"plan": [("0:1", 1), ("1:2", 1), ("2:", 1)], "order": "gpipe"},
        {"plan": [("0:2", 1), ("2:", 1)], "engine": address, "checkpoint": tmp_path.as_uri()},
        {"plan": "pipeline", "engine": address},
    ):
        again = classifier(undrawn_net, **options).fit(*data)
        assert np.array_equal(again.weights_, model.weights_)
        assert np.array_equal(again.buffers_, model.buffers_)
    assert not np.array_equal(classifier(undrawn_net, random_state=1).fit(*data).weights_, model.weights_)
    assert model.score(*data) > 0.6
    assert not any(t.is_meta for t in model.module_.state_dict().values())
    model.save(tmp_path / "model.npz")
    read = sd.load(tmp_path / "model.npz", module=undrawn_net)
    assert np.array_equal(read.predict(data[0]), model.predict(data[0]))
    before = model.loss_
    assert model.set_params(warm_start=True, max_iter=1).fit(*data).loss_ < before


def test_layers_are_drawn_as_they_draw_themselves():
    from stradask.algorithms._streams import Purpose
    from stradask.algorithms.neural.training.torch_stage import TorchLayers, seeded

    layer = nn.Linear(10, 16)
    with seeded(3, Purpose.LAYERS.value, 0):
        layer.reset_parameters()
    drawn = TorchLayers(undrawn_net(10, 2)).stage(0, 2).start(3)
    rest = np.ones(16), np.zeros(16), np.zeros(16), np.ones(16), np.zeros(1)  # of the normalisation
    assert np.array_equal(
        drawn, np.concatenate([layer.weight.detach().ravel(), layer.bias.detach(), *rest]).astype(np.float32)
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda net: net.append(nn.Linear(3, 3)), "some parameters on the meta device and others not"),
        (lambda net: net.append(Scaled()), "its part Scaled has no method reset_parameters"),
    ],
)
def test_what_cannot_be_drawn_is_refused(data, change, said):
    with pytest.raises(DataError, match=said):
        classifier(lambda a, b: change(undrawn_net(a, b))).fit(*data)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3, device="meta"))

    def forward(self, x):
        return x * self.scale


def test_a_split_of_what_places_draw_is_refused(data):
    for plan in ("split", [("0:", 2, "split")]):
        with pytest.raises(DataError, match="plan splits layers whose parameters are on the meta device"):
            classifier(undrawn_net, plan=plan, n_jobs=2).fit(*data)
