"""Torch, modules of it, and an estimator of one, that tests share.

Tests take torch itself from here too: where it is not installed they skip, and `import torch` would fail.
"""

import importlib.util

import pytest

import stradask as sd

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)
import torch
from torch import nn


def small_net(n_features, n_outputs):
    return nn.Sequential(nn.Linear(n_features, 16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, n_outputs))


def linear_net(n_features, n_outputs):
    return nn.Sequential(nn.Linear(n_features, 16), nn.ReLU(), nn.Linear(16, n_outputs))


def undrawn_net(n_features, n_outputs):
    with torch.device("meta"):
        return nn.Sequential(
            nn.Linear(n_features, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.Linear(16, n_outputs)
        )


def classifier(module=small_net, **options):
    settings = {"learning_rate": 0.1, "batch_size": 100, "micro_batches": 4, "max_iter": 4, "random_state": 0}
    return sd.TorchClassifier(module, **settings | options)
