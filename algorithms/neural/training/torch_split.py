"""Two linear layers of torch, split over places; see `split`."""

from ....errors import DataError
from ....scheduler.planning.costs import LayerPair
from .split import SplitStage, StageChain, cuts_of, indices
from .torch_stage import TorchStage, _held, import_torch

# What may be between the two layers: functions of each value by itself, without parameters.
_ELEMENTWISE = {
    *("CELU", "ELU", "GELU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "Identity", "LeakyReLU"),
    *("LogSigmoid", "Mish", "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softplus", "Softshrink", "Softsign"),
    *("Tanh", "Tanhshrink", "Threshold"),
}


def find_pair(children, first, last):
    """Find the two linear layers with the most parameters, with nothing but activations between them."""
    linear = import_torch().nn.Linear
    found = []
    for one in range(first, last):
        two = one + 1
        while two < last and _is_elementwise(children[two]):
            two += 1
        if two < last and type(children[one]) is linear and type(children[two]) is linear:
            a, b = children[one], children[two]
            widths = a.in_features, a.out_features, b.out_features
            found.append((widths[1] * (widths[0] + widths[2]), -one, LayerPair(one, two, widths)))
    if not found:
        raise DataError(
            f"plan splits layers {first}:{last}, which have no two nn.Linear with at most activations, "
            "such as nn.ReLU, between them: split a stage that has"
        )
    return max(found)[-1]


def split_layers(children, first, last, n_parts, device):
    """Return layers first to last, without the latter, as a `SplitStage`."""
    one, two, (n_in, n_hidden, n_out) = find_pair(children, first, last)
    a, b = children[one], children[two]
    biases = a.bias is not None, b.bias is not None
    nn, kind = import_torch().nn, {"device": "meta", "dtype": a.weight.dtype}
    parts = [
        TorchStage(
            [
                nn.Linear(n_in, stop - start, bias=biases[0], **kind),
                *children[one + 1 : two],
                nn.Linear(stop - start, n_out, bias=biases[1] and not start, **kind),
            ],
            one,
            begins=not one,
            device=device,
        )
        for start, stop in cuts_of(n_hidden, n_parts)
    ]
    before, after = (
        [TorchStage(children[start:stop], start, begins=not start, device=device)] if start < stop else []
        for start, stop in ((first, one), (two + 1, last))
    )
    if any(stage.n_buffers for stage in (*before, *after, TorchStage([a, b]))):
        raise DataError(
            f"plan splits layers {first}:{last}, which hold buffers (of batch normalisation) or parameters "
            "that are not trained: put these layers into another stage"
        )
    index = indices(n_in, n_hidden, n_out, n_parts, columns_first=False, biases=biases)
    return SplitStage(*(_chain(before), parts, _chain(after)), index)


def _chain(stages):
    return StageChain([(s, sum(t.numel() for layer in s.layers for _, t in _held(layer)[0])) for s in stages])


def _is_elementwise(layer):
    kind = type(layer)
    return (kind.__module__ == "torch.nn.modules.activation" and kind.__name__ in _ELEMENTWISE) or (
        kind.__name__ == "Identity" and kind.__module__ == "torch.nn.modules.linear"
    )
