"""Bayesian posteriors: effective draws a CPU second, and errors in posterior standard deviations."""

import hashlib

import numpy as np

from ...algorithms.bayes.posterior.convergence import ess
from ...errors import DataError
from ..mcmc_cases import CASES, RACES, load, start, truth
from . import Problem

METHODS = ("average", "consensus", "parametric", "score", "nonparametric", "semiparametric", "auto")
LEAST_ROWS = 10  # of a shard, for each parameter
RIVALS = {"shards": "auto", "full": "full data as long", "laplace": "Laplace as long"}


class Objective:
    """Chains of a posterior, and of its shards, judged against its means and standard deviations.

    "chains" is the posterior in one piece by NUTS, warm-up counted, and "auto" what stradask picks. "M=10
    auto" is 10 shards, one after another, and their combination: the slowest shard and the combination are
    the seconds that a cluster would take. Errors are root mean squares over parameters: of means in posterior
    standard deviations, and of standard deviations in parts. Tail ESS (Vehtari et al., 2021) is that of the
    worst parameter; draws that come from weights are worth at most what the weights are.

    Data sets: "logistic" (50,000 x 50), "rare" (40,000 x 20, about one row in a hundred is positive),
    "credit" (1,000 x 25, of the shape of the German credit data), "covtype" (581,012 x 54, of that shape),
    "eight-schools", "poisson-gamma", "mixture"; "saturation" (100,000 rows), a race at equal wall
    time: 5 shards, a run of all rows on 5 cores, and importance sampling about the mode on 5 cores.
    """

    procedure = "sampling"
    default_datasets = tuple(name for name in CASES if name != "covtype")
    defaults = {  # noqa: RUF012
        "n_chains": 2,
        "n_samples": 1000,
        "n_warmup": 1000,
        "shards": (1, 4, 10, 20),
        "methods": METHODS,
    }
    quick_defaults = {  # noqa: RUF012
        "n_samples": 300,
        "n_warmup": 300,
        "shards": (4,),
        "methods": ("consensus", "auto"),
    }
    max_seconds, quick_max_seconds = 300.0, 60.0

    def __init__(self, dataset, *, seed, parameters, quick=False):
        self.dataset, self.seed, self.quick, self.parameters = dataset, seed, quick, parameters
        for name in ("n_chains", "n_samples", "n_warmup"):
            value = parameters[name]
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise DataError(f"--param: {name} is {value!r}; an integer of at least 1 is needed")
        if parameters["n_samples"] < 8:
            raise DataError(f"--param: n_samples is {parameters['n_samples']}; 8 are needed to be judged")
        self.shards = _several("shards", parameters["shards"], int)
        self.methods = _several("methods", parameters["methods"], str)
        if any(isinstance(m, bool) or m < 1 for m in self.shards):
            raise DataError(f"--param: shards is {self.shards!r}; integers of at least 1 are needed")
        if unknown := set(self.methods) - {*METHODS}:
            raise DataError(f"--param: methods: {unknown} are none of {', '.join(METHODS)}")
        self.kind, self.data = load(dataset, seed=seed, quick=quick)
        self.truth = truth(self.kind, self.data, seed)

    def describe(self):
        """Return the facts of the data for the records."""
        digest = hashlib.sha256()
        for array in self.data.values():
            digest.update(np.ascontiguousarray(array).tobytes())
        return {
            "name": self.dataset + (" (quick)" if self.quick else ""),
            "fingerprint": digest.hexdigest()[:16],
            "rows": len(self.data["y"]),
            "parameters": 10 if self.kind == "eight-schools" else len(self.truth.mean),
            "truth": self.truth.how,
        }

    def settings(self):
        """Settings that every solver is given."""
        return {name: self.parameters[name] for name in ("n_chains", "n_samples", "n_warmup")}

    def problems(self):
        """Return the whole posterior, and its shards by every method where they have rows enough."""
        if self.dataset in RACES:
            n_shards = RACES[self.dataset]
            return [
                Problem(f"M={n_shards}, {words}", "race", {"n_shards": n_shards, "rival": rival}, ())
                for rival, words in RIVALS.items()
            ]
        problems = [Problem("chains", "sample", {}, ()), Problem("auto", "automatic", {}, ())]
        if self.kind == "logistic":
            n, d = self.data["X"].shape
            problems += [
                Problem(f"M={m} {method}", "combine", {"n_shards": m, "method": method}, ())
                for m in self.shards
                for method in (self.methods if m > 1 else ("auto",))
                if n >= m * d * LEAST_ROWS
            ]
        return problems

    def arrays(self):
        """The data, the kind of model, and where to begin."""
        return self.data | {"kind": np.array(self.kind), "start": start(self.kind, self.data)}

    def sample(self):
        """A small part of the data to warm up on."""
        small = self.data if self.kind == "eight-schools" else {k: x[:200] for k, x in self.data.items()}
        return small | {"kind": np.array(self.kind), "start": start(self.kind, self.data)}

    def evaluate(self, problem, arrays):
        """Judge ``draws`` (chains, n, parameters), which may be ``refused``: then that reason is all.

        ``worth`` is the number that weighted draws are worth; shards have ``shard_seconds`` (M,) and
        ``combine_seconds``. Errors are in posterior standard deviations.
        """
        if "refused" in arrays:
            return {"refused": str(arrays["refused"])}
        draws = np.asarray(arrays["draws"], dtype=np.float64)
        k = len(self.truth.mean)
        if draws.ndim != 3 or draws.shape[2] != k or not np.isfinite(draws).all():
            raise DataError(f"draws must be finite and of the shape (chains, n, {k}), got {draws.shape}")
        flat = draws.reshape(-1, k)
        ends = self.truth.quantiles
        worth = float(arrays["worth"]) if "worth" in arrays else np.inf
        figures = {
            "mean_error": _rms((flat.mean(axis=0) - self.truth.mean) / self.truth.sd),
            "sd_error": _rms(flat.std(axis=0) / self.truth.sd - 1),
            "quantile_error": _rms((np.quantile(flat, (0.05, 0.95), axis=0) - ends) / self.truth.sd),
            "bulk_ess": min(float(np.nan_to_num(ess(draws, "bulk")).min()), worth),  # NaN: it did not move
            "tail_ess": min(float(np.nan_to_num(ess(draws, "tail")).min()), worth),
        }
        if "shard_seconds" in arrays:
            slowest = float(np.max(arrays["shard_seconds"]))
            figures["parallel_seconds"] = slowest + float(arrays["combine_seconds"])
        if "k_hat" in arrays and np.isfinite(arrays["k_hat"]):
            figures["k_hat"] = float(arrays["k_hat"])
        return figures


def _rms(errors):
    return float(np.sqrt(np.mean(np.square(errors))))


def _several(name, values, kind):
    values = values if isinstance(values, tuple | list) else (values,)
    if not values or not all(isinstance(value, kind) for value in values):
        raise DataError(f"--param: {name} is {values!r}; give one or several of type {kind.__name__}")
    return tuple(values)
