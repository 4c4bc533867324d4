"""What is stored of a factorization: checks of model files, what these may lack, and checkpoints."""

import dataclasses

import numpy as np
from scipy import sparse

from ...errors import DataError, shortened
from ...scheduler.stores.store import fingerprint_csr
from .choose import settings_of


def held_cells(model):
    """The rated cells; DataError for a model without: of ratings that stayed on a cluster, or saved so."""
    if model.seen_ is None:
        raise DataError(
            "this needs the rated cells, and the model was saved with training=False, or fitted to ratings "
            "that stayed on a cluster: give the ratings of the users as a sparse matrix with the columns of "
            "item_ids_, not their ids; recommend can go without by filter_seen=False, and leaves out the "
            "cells of a sparse exclude"
        )
    return model.seen_


def check_stored(model):
    """Raise DataError unless the attributes of a `MatrixFactorization` fit together."""
    for side in ("user", "item"):
        weights = getattr(model, f"{side}_feature_weights_")
        if weights is not None and (weights.ndim != 2 or weights.shape[1] != model.n_components + 1):
            raise DataError(f"{side}_feature_weights_ has the shape {weights.shape}")
    for side in ("user", "item"):
        factors, bias, ids = (getattr(model, f"{side}_{part}_") for part in ("factors", "bias", "ids"))
        if (
            factors.shape != (len(ids), model.n_components)
            or bias.shape != (len(ids),)
            or ids.shape != (len(ids),)
        ):
            raise DataError(f"{side}_factors_ and {side}_bias_ cannot be those of {len(ids)} {side}s")
        if factors.dtype != model.dtype or bias.dtype != model.dtype or ids.dtype.kind not in "iU":
            raise DataError(f"the {side}s are not stored as {model.dtype}")
    seen = model.seen_  # None for ratings that stayed on a cluster, and models saved without
    if seen is not None and seen.shape != (len(model.user_ids_), len(model.item_ids_)):
        raise DataError(f"seen_ has the shape {seen.shape}")
    sound = np.isfinite(float(model.mean_)) and np.isfinite(float(model.confidence_))
    if (seen is not None and seen.dtype.kind not in "biuf") or not sound:
        raise DataError("seen_, mean_ and confidence_ must hold numbers")
    counts = getattr(model, "item_counts_", None)
    if counts is not None and (counts.shape != model.item_ids_.shape or counts.dtype.kind not in "iu"):
        raise DataError(f"item_counts_ is {counts.dtype} of shape {counts.shape}")
    names = ("user_draws_", "item_draws_", "variance_draws_")
    if any(hasattr(model, name) for name in names):
        draws = [getattr(model, name) for name in names]
        n, K = len(draws[2]), model.n_components
        K += 2 * (np.shape(draws[0])[-1:] == (K + 2,))  # biases and ones, which draws of 0.2 have not
        expected = [(n, len(model.user_ids_), K), (n, len(model.item_ids_), K), (n,)]
        if [part.shape for part in draws] != expected or any(part.dtype.kind != "f" for part in draws):
            raise DataError(f"{', '.join(names)} must be numbers of the shapes {expected}")
    bias_reg, offsets = model.bias_reg_, model.reg_offset_
    regs = np.append(0.0 if bias_reg is None else bias_reg, offsets)
    is_pair = (bias_reg is None or np.shape(bias_reg) == (2,)) and np.shape(offsets) == (2,)
    if not (is_pair and np.isfinite(regs).all() and (regs >= 0).all()):
        raise DataError(f"bias_reg_ is {bias_reg} and reg_offset_ {offsets}; they cannot be penalties")
    if model.solver_ not in ("als", "ccd", "gibbs", "sgd"):
        raise DataError(f"solver_ is {shortened(model.solver_)}")
    if model.rating_range_ is not None:
        bounds = np.asarray(model.rating_range_)
        is_pair = bounds.shape == (2,) and bounds.dtype.kind == "f" and np.isfinite(bounds).all()
        if not is_pair or bounds[0] > bounds[1]:
            raise DataError(f"rating_range_ is {shortened(bounds)}; it must be the least and greatest rating")


def fingerprint_of(model, entries, features, seed):
    """What a checkpoint belongs to: ratings, settings and seed."""
    settings = dataclasses.asdict(settings_of(model)) | {"n_jobs": None}
    if model.solver_ != "sgd":  # whose rates depend on it; elsewhere a fit may go on for longer
        del settings["max_iter"]
    if settings["loss"] in ("squared", "bpr"):  # the only ones of older checkpoints, which do not name them
        del settings["loss"]
    if not settings["n_draws"]:
        del settings["n_draws"]
    if model.solver_ == "gibbs":  # checkpoints of 0.2 have no draws of biases
        settings["priors"] = "biases"
    offsets, exponent = settings["offsets"], settings["exponent"]
    if exponent == 0 or (exponent == 1 and offsets[0] == offsets[1]):  # as checkpoints of 0.2 have it
        del settings["offsets"], settings["exponent"]
        settings |= {"scale_reg": exponent == 1, "offset": offsets[0]}
    if settings["bias_reg"] is None:  # implicit feedback, which had no offset there
        del settings["bias_reg"]
        if exponent == 0 or settings.get("offset") == 0:
            settings.pop("offset", None)
    return {
        "settings": settings,
        "seed": seed,
        **entries.fingerprint(),
        "features": [
            None if table is None else fingerprint_csr(sparse.csr_array(table)) for table in features
        ],
    }
