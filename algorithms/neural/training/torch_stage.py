"""Stages of torch modules: a module is cut between its children, and keeps no numbers of its own."""

import copy
import inspect
import threading
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from ....errors import DataError, StradaskError, in_brief, shortened
from ..._streams import Purpose

# Files of torch.nn whose modules draw no random numbers, but for these modules.
_STEADY = {
    *("linear", "conv", "batchnorm", "normalization", "instancenorm", "flatten", "container", "pooling"),
    *("padding", "activation", "sparse", "upsampling", "pixelshuffle", "channelshuffle", "fold", "distance"),
}
_RANDOM = ("RReLU", "MultiheadAttention", "FractionalMaxPool2d", "FractionalMaxPool3d")
_drawing = threading.RLock()  # the generator of torch is one for all threads


def import_torch():
    """Return torch, or say how to install it."""
    try:
        import torch
    except ImportError as error:
        raise StradaskError(
            f"torch cannot be imported ({in_brief(error)}): install it, for instance with pip install "
            "'stradask[torch]'"
        ) from error
    return torch


@contextmanager
def seeded(*numbers, device="cpu"):
    """Let torch draw from generators of these numbers, and restore the generators that there were."""
    import torch

    words = np.random.SeedSequence([int(n) % 2**64 for n in numbers]).generate_state(1, np.uint64)
    seed = int(words[0] >> np.uint64(1))
    with _drawing, _seeded_gpu(seed, device) if device.startswith("cuda") else nullcontext():
        before = torch.random.get_rng_state()
        torch.random.default_generator.manual_seed(seed)
        try:
            yield
        finally:
            torch.random.set_rng_state(before)


@contextmanager
def _seeded_gpu(seed, device):
    import torch

    before = torch.cuda.get_rng_state(device)
    with torch.cuda.device(device):
        torch.cuda.manual_seed(seed)
    try:
        yield
    finally:
        torch.cuda.set_rng_state(before, device)


@contextmanager
def one_torch_thread():
    """Let torch compute on one thread, here: the number of its threads would change the last bits of sums."""
    import torch

    before = torch.get_num_threads()
    if before > 1:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if before > 1:
            torch.set_num_threads(before)


class TorchLayers:
    """A module as layers that can be cut: the children of a Sequential, any other module as one.

    Parameters
    ----------
    module : torch.nn.Module
        It is not changed.
    device : str, default="cpu"
        Where stages compute.

    Attributes
    ----------
    children : list of torch.nn.Module
        The layers, without numbers, in the state of training.
    sizes : list of (int, int)
        Trained entries and buffers of each layer. A parameter that is not trained counts as a buffer.
    start : tuple of ndarray, or None
        The numbers of the module: trained entries, and buffers. None for a module on the meta device, which
        has none: stages draw theirs.
    dtype : dtype
    """

    def __init__(self, module, device="cpu"):
        self.dtype, self.device = _dtype(module), device
        parts = _parts(module)
        held = list(map(_held, parts))
        self.sizes = [tuple(sum(t.numel() for _, t in kind) for kind in names) for names in held]
        self.start: Any = None
        if not is_undrawn(module):
            self.start = tuple(
                _flat([t for names in held for _, t in names[kind]], self.dtype) for kind in (0, 1)
            )
        self.children = [_with_tensors_on("meta", part).train() for part in parts]

    def stage(self, first, last):
        """Return the layers first to last, without the latter, as a stage."""
        return TorchStage(self.children[first:last], first, begins=first == 0, device=self.device)

    def pair(self, first, last):
        """Return the pair of layers that `split` takes."""
        from .torch_split import find_pair

        return find_pair(self.children, first, last)

    def split(self, first, last, n_parts):
        """Return the layers as a `SplitStage`: each place has some hidden units of a pair of them."""
        from .torch_split import split_layers

        return split_layers(self.children, first, last, n_parts, self.device)

    def has_batch_norm(self):
        """Whether a layer normalises by the rows of a micro-batch."""
        kind = import_torch().nn.modules.batchnorm._BatchNorm
        return any(isinstance(part, kind) for child in self.children for part in child.modules())


def copied(module, known=None):
    """Return a copy of a module, or say why there can be none; `known` has copies of parts by their ids."""
    try:
        return copy.deepcopy(module, known)
    except Exception as error:  # of the caller's module
        raise DataError(
            f"module cannot be copied: {in_brief(error)}; it must hold no open files, locks and the like"
        ) from error


def filled(module, trained, buffers):
    """Return a copy of a module with these numbers, in the state of evaluation."""
    import torch

    module = _with_tensors_on("cpu", module) if is_undrawn(module) else copied(module)
    held = list(map(_held, _parts(module)))
    with torch.no_grad():
        for kind, vector in enumerate((trained, buffers)):
            tensors = [tensor for names in held for _, tensor in names[kind]]
            if sum(t.numel() for t in tensors) != len(vector):
                raise DataError(
                    f"module has {sum(t.numel() for t in tensors)} {('parameters', 'buffers')[kind]}, but "
                    f"the model was fitted with {len(vector)}: give the module that it was fitted with"
                )
            for tensor, values in zip(tensors, _views(tensors, vector), strict=True):
                tensor.copy_(values)
    return module.eval()


def is_undrawn(module):
    """Whether a module is on the meta device: its tensors have shapes and no values.

    Raises DataError for a module of which this holds in part, or that cannot draw them.
    """
    found = {t.is_meta for kind in _held(module) for _, t in kind}
    if found != {True}:
        if True in found:
            raise DataError(
                "module has some parameters on the meta device and others not: put all there, or none"
            )
        return False
    for part in module.modules():
        if (part._parameters or part._buffers) and not hasattr(part, "reset_parameters"):
            raise DataError(
                f"module is on the meta device, and its part {type(part).__name__} has no method "
                "reset_parameters, by which places draw initial values: add one, or make the module on the "
                "CPU"
            )
    return True


def _parts(module):
    """Return the layers of a module: it is one itself where some of them share tensors."""
    import torch

    parts = list(module.children()) if type(module) is torch.nn.Sequential else []
    ids = [id(tensor) for part in parts for kind in _held(part) for _, tensor in kind]
    return parts if parts and len(ids) == len(set(ids)) else [module]


def _dtype(module):
    torch = import_torch()
    kinds = {p.dtype for p in module.parameters()}
    if any(isinstance(p, torch.nn.parameter.UninitializedParameter) for p in module.parameters()):
        raise DataError(
            "module has parameters without a shape: call it once on a few rows before the fit, or give a "
            "function of (n_features, n_outputs) that makes it"
        )
    if len(kinds) != 1 or not kinds <= {torch.float32, torch.float64}:
        names = ", ".join(sorted(str(kind) for kind in kinds)) or "none"
        raise DataError(
            f"module has parameters of these types: {names}; all must be float32, or all float64: call "
            "module.float()"
        )
    return _numpy_type(next(module.parameters()))


def _numpy_type(tensor):
    return np.dtype(str(tensor.dtype).removeprefix("torch."))


def _held(part):
    """Return the names and tensors of a layer: what is trained, and what is not."""
    trained = [(name, p) for name, p in part.named_parameters() if p.requires_grad]
    frozen = [(name, p) for name, p in part.named_parameters() if not p.requires_grad]
    return trained, [*frozen, *part.named_buffers()]


def _flat(tensors, dtype):
    parts = [t.detach().cpu().numpy().ravel().astype(dtype) for t in tensors]
    return np.concatenate(parts) if parts else np.empty(0, dtype)


def _views(tensors, vector):
    """Cut a flat vector into the shapes of these tensors; autograd follows changes of each apart."""
    import torch

    at = 0
    for tensor in tensors:
        yield torch.from_numpy(vector[at : at + tensor.numel()]).view(tensor.shape)
        at += tensor.numel()


class TorchStage:
    """Some layers of a network; tensors share memory with the flat vector.

    Random numbers of a layer (dropout) come from the key and the layer's number in the whole network, so that
    where it is cut changes no bit. Buffers are kept in the type of the parameters.

    Parameters
    ----------
    layers : list of torch.nn.Module
        Their own numbers are not used.
    first : int, default=0
        Number of the first layer in the whole network.
    begins : bool, default=False
        Whether this is the first stage, which needs no gradient of its input.
    device : str, default="cpu"
        Where it computes: "cpu", "cuda", "cuda:1"... Parameters are kept by the program, in memory of the
        host; copies are on the device until `changed` is called.
    """

    def __init__(self, layers, first=0, begins=False, device="cpu"):
        self.layers, self.first, self.begins, self.device = layers, first, begins, device
        self.n_buffers = sum(t.numel() for layer in layers for _, t in _held(layer)[1])
        self.draws = [not all(map(_is_steady, layer.modules())) for layer in layers]
        self.overwrites = _may_overwrite(layers[0])
        self._bound: Any = None

    def __getstate__(self):
        """Leave out the layers that have numbers."""
        return vars(self) | {"_bound": None}

    def start(self, seed):
        """Return the numbers of the layers as they are, or draw those of layers on the meta device.

        They draw by `reset_parameters` and their number in the whole network, wherever it is cut.
        """
        layers = [
            _drawn(layer, (seed, Purpose.LAYERS.value, self.first + number)) if is_undrawn(layer) else layer
            for number, layer in enumerate(self.layers)
        ]
        held = list(map(_held, layers))
        tensors = [t for kind in (0, 1) for names in held for _, t in names[kind]]
        return _flat(tensors, next((_numpy_type(t) for t in tensors if t.is_floating_point()), np.float32))

    def forward(self, params, x, key):
        """Call the layers one after another, recording what autograd needs."""
        import torch

        if self._bound is None:
            self._bound = _BoundLayers(self.layers, self.device)
        with one_torch_thread():
            leaves = self._bound.take(params, len(params) - self.n_buffers)
            inputs = torch.from_numpy(np.ascontiguousarray(x)).to(self.device)
            if not self.begins and inputs.is_floating_point():
                inputs.requires_grad_()
            y = inputs.clone() if self.overwrites else inputs
            for number, (layer, draws) in enumerate(zip(self._bound.layers, self.draws, strict=True)):
                with seeded(*key, self.first + number, device=self.device) if draws else nullcontext():
                    y = layer(y)
            self._bound.put_back()
        if not isinstance(y, torch.Tensor):
            raise DataError(
                f"layer {self.first + len(self.draws) - 1} returns a {type(y).__name__}, and one tensor can "
                "be handed on from stage to stage: cut where a layer returns one, or take plan='data'"
            )
        return y.detach().cpu().numpy(), (inputs, leaves, y)

    def changed(self):
        """Forget copies of the parameters: the program has changed them."""
        if self._bound is not None and self.device != "cpu":
            self._bound.forget()

    def backward(self, context, dy, grads):
        """Let autograd add to `grads`."""
        import torch

        inputs, leaves, y = context
        if y.requires_grad:
            leaves.add_to(grads)
            with one_torch_thread():
                y.backward(torch.from_numpy(dy).to(self.device))
            leaves.added(grads)
        if not inputs.requires_grad:
            return None
        dx, inputs.grad = inputs.grad, None
        return np.zeros(inputs.shape, dy.dtype) if dx is None else dx.cpu().contiguous().numpy()


class _BoundLayers:
    """Copies of layers whose parameters and buffers are views of a flat vector.

    They stay views of it from call to call: to bind them anew by `torch.func.functional_call` takes longer
    than small layers compute.
    """

    def __init__(self, layers, device):
        self.layers: list[Any] = copy.deepcopy(layers)
        self.device = device
        # For both kinds of numbers: each tensor, and where modules have it, as (dict, name).
        self._trained: list[Any] = []
        self._moving: list[Any] = []
        for layer in self.layers:
            owners = _owners(layer)
            for kind, names in zip((self._trained, self._moving), _held(layer), strict=True):
                kind += [(tensor, owners[id(tensor)]) for _, tensor in names]
        self._params, self._leaves = None, None
        self._views: list[Any] = []  # of the vector, one for each buffer

    def take(self, params, n_trained):
        """Let the layers have the numbers of a vector; return its leaves."""
        if self._params is not params:
            self._params = params
            self._leaves = _Leaves(_shapes(self._trained), params[:n_trained], self.device)
            for leaf, (_, owners) in zip(self._leaves.tensors, self._trained, strict=True):
                _give(leaf, owners)
        # New views in each call: autograd refuses a backward pass whose tensors were changed after it.
        self._views = list(_views(_shapes(self._moving), params[n_trained:]))
        for view, (kept, owners) in zip(self._views, self._moving, strict=True):
            _give(view.to(self.device, kept.dtype), owners)  # a copy of counts, as int64
        return self._leaves

    def forget(self):
        """Make the leaves anew the next time."""
        self._params = None

    def put_back(self):
        """Take in buffers that are no views: converted ones, and those that a layer has set anew."""
        for view, (_, ((tensors, name), *_)) in zip(self._views, self._moving, strict=True):
            if tensors[name] is not view:
                view.copy_(tensors[name].detach())


class _Leaves:
    """The trained tensors of one vector; their gradients are views of another one.

    On another device than the CPU both are copies.
    """

    def __init__(self, shapes, vector, device):
        self.tensors = [
            view.to(device, copy=device != "cpu").requires_grad_() for view in _views(shapes, vector)
        ]
        self._grads: Any = None
        self._here = device == "cpu"

    def add_to(self, grads):
        """Let autograd add gradients to this vector."""
        if not self._here:
            for leaf in self.tensors:
                leaf.grad = None
        elif self._grads is not grads:
            self._grads = grads
            for leaf, view in zip(self.tensors, _views(self.tensors, grads), strict=True):
                leaf.grad = view

    def added(self, grads):
        """Add what autograd left on another device."""
        if not self._here:
            for leaf, view in zip(self.tensors, _views(self.tensors, grads), strict=True):
                if leaf.grad is not None:
                    view += leaf.grad.cpu()


def _with_tensors_on(device, part):
    """Return a copy of a layer with new tensors, whose values are any; those that are tied stay tied."""
    import torch

    empty: dict[int, Any] = {id(b): torch.empty_like(b, device=device) for b in part.buffers()}
    for p in part.parameters():
        empty[id(p)] = torch.nn.Parameter(torch.empty_like(p.detach(), device=device), p.requires_grad)
    return copied(part, empty)


def _drawn(layer, key):
    """Return a copy of a layer on the meta device, with initial values."""
    layer = _with_tensors_on("cpu", layer)
    with seeded(*key):
        for part in layer.modules():
            if part._parameters or part._buffers:
                part.reset_parameters()
    return layer


def _owners(layer):
    """Return by the id of a tensor the dicts that have it, and its names there: several if it is tied."""
    found: dict[int, list] = {}
    for module in layer.modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                found.setdefault(id(tensor), []).append((tensors, name))
    return found


def _shapes(held):
    return [tensor for tensor, _ in held]


def _give(tensor, owners):
    for tensors, name in owners:
        tensors[name] = tensor


def _is_steady(part):
    """Whether a module is known to draw no random numbers; its children are asked by themselves."""
    kind = type(part)
    home, _, file = kind.__module__.rpartition(".")
    return home == "torch.nn.modules" and file in _STEADY and kind.__name__ not in _RANDOM


def _may_overwrite(layer):
    """Whether a layer may write into its input, which recomputation and the stage before still need."""
    return any(
        getattr(part, "inplace", False) or not type(part).__module__.startswith("torch.nn.")
        for part in layer.modules()
    )


def make_module(module, shape, n_outputs, seed):
    """Return the module of an estimator's parameter: itself, or what a function makes, drawn by the seed.

    The function is called with nothing, or with `n_features` (of rows of several axes their shape) and the
    number of outputs.
    """
    torch = import_torch()
    if isinstance(module, torch.nn.Module):
        return module
    if not callable(module):
        raise DataError(
            f"module must be a torch.nn.Module, or a function of (n_features, n_outputs) that makes one, got "
            f"{shortened(module)}"
        )
    needed = [
        p
        for p in inspect.signature(module).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if len(needed) not in (0, 2):
        raise DataError(
            f"module is a function of {len(needed)} arguments: it is called with none, or with (n_features, "
            "n_outputs)"
        )
    with seeded(seed):
        made = module() if not needed else module(shape[0] if len(shape) == 1 else shape, n_outputs)
    if not isinstance(made, torch.nn.Module):
        raise DataError(
            f"the function given as module made {shortened(made)}, and must make a torch.nn.Module"
        )
    return made
