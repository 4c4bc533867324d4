"""Reference posteriors of posteriordb: errors, effective draws a second, and verdicts of `sample`.

    python -m stradask.benchmarks.experiments.mcmc.posteriordb FOLDER [--only NAME ...] [--out FOLDER]

FOLDER is a copy of github.com/stan-dev/posteriordb, or has a folder for each posterior, with
``posterior.json`` (``data``) and ``reference.json`` (``summary``: mean and sd of each parameter). Each
model is a compiled log likelihood with named parameters and priors, written from its Stan program. Seconds
are those of the CPU: "first" has the compilation, unless a model before had the same, "later" has not. The
error is the root mean square, over parameters, of the difference of the means in standard deviations of the
reference; the ratio of sd is the one furthest from 1.
"""

import argparse
import functools
import json
import time
import warnings
from pathlib import Path

import numba as nb
import numpy as np

import stradask as sd
from stradask.errors import PosteriorWarning

from .posteriordb_linear import LINEAR, linear, read
from .posteriordb_processes import PROCESSES
from .posteriordb_series import SERIES

pr = sd.priors
WRONG = (0.05, 0.15)  # errors of means, in sd, that "trusted" and "with care" must not have


@nb.njit
def normal(p, data, g):
    """y ~ N(X beta, sigma)."""
    X, y = data
    r = (y - X @ p.beta) / p.sigma
    g.beta[:] += X.T @ r / p.sigma
    squares = (r * r).sum()
    g.sigma[0] += (squares - len(y)) / p.sigma
    return -len(y) * np.log(p.sigma) - 0.5 * squares


@nb.njit
def logistic(p, data, g):
    """Signs s ~ logistic regression on X beta."""
    X, s = data
    f = s * (X @ p.beta)
    g.beta[:] += X.T @ (s / (1 + np.exp(f)))
    return -np.log1p(np.exp(-f)).sum()


@nb.njit
def counts(p, data, g):
    """C ~ Poisson(exp(alpha + X beta))."""
    X, y = data
    f = p.alpha + X @ p.beta
    rest = y - np.exp(f)
    g.alpha[0] += rest.sum()
    g.beta[:] += X.T @ rest
    return (y * f - np.exp(f)).sum()


@nb.njit
def schools(p, data, g):
    """y_j ~ N(mu + tau z_j, sigma_j)."""
    y, sigma = data
    r = (y - p.mu - p.tau * p.z) / sigma
    g.mu[0] += (r / sigma).sum()
    g.tau[0] += (r / sigma * p.z).sum()
    g.z[:] += r / sigma * p.tau
    return -0.5 * (r * r).sum()


@nb.njit
def radon(p, data, g):
    """y ~ N(mu + spread z_county + X beta, sigma)."""
    X, county, y = data
    total = -len(y) * np.log(p.sigma)
    for i in range(len(y)):
        c = county[i]
        r = (y[i] - p.mu - p.spread * p.z[c] - X[i, 0] * p.beta[0] - X[i, 1] * p.beta[1]) / p.sigma
        slope = r / p.sigma
        g.mu[0] += slope
        g.spread[0] += slope * p.z[c]
        g.z[c] += slope * p.spread
        g.beta[0] += slope * X[i, 0]
        g.beta[1] += slope * X[i, 1]
        g.sigma[0] += (r * r - 1) / p.sigma
        total -= 0.5 * r * r
    return total


@nb.njit
def mixture(p, data):
    """Two normals of one dimension."""
    total = 0.0
    for x in data:
        one = np.log(p.theta / p.sigma[0]) - 0.5 * ((x - p.mu[0]) / p.sigma[0]) ** 2
        two = np.log((1 - p.theta) / p.sigma[1]) - 0.5 * ((x - p.mu[1]) / p.sigma[1]) ** 2
        high = max(one, two)
        total += high + np.log(np.exp(one - high) + np.exp(two - high))
    return total


@nb.njit
def seeds(p, data, g):
    """n_i ~ Binomial(N_i, expit(X beta + z_i / sqrt(tau)))."""
    X, n, N = data
    sd = p.tau**-0.5
    f = X @ p.beta + sd * p.z
    rest = n - N / (1 + np.exp(-f))
    g.beta[:] += X.T @ rest
    g.z[:] += rest * sd
    g.tau[0] -= 0.5 * (rest * p.z).sum() * sd / p.tau
    return (n * f - N * np.log1p(np.exp(f))).sum()


def _columns(*columns):
    return np.ascontiguousarray(np.column_stack([np.asarray(column, float) for column in columns]))


def _regression(X, y, sigma, beta=None):
    """A normal regression; a prior of None is flat."""
    priors = {name: one for name, one in (("beta", beta), ("sigma", sigma)) if one is not None}
    parameters = {"beta": sd.real(X.shape[1]), "sigma": sd.positive()}
    return normal, (X, np.asarray(y, float)), parameters, priors, None


def _kidiq(d, *names):
    made = {"hs": d.get("mom_hs"), "iq": d.get("mom_iq")}
    made["both"] = np.multiply(made["hs"], made["iq"])
    X = _columns(np.ones(d["N"]), *(made[name] for name in names))
    return _regression(X, d["kid_score"], pr.half_cauchy(2.5))


def _earnings(d):
    male, height = np.asarray(d["male"], float), np.asarray(d["height"], float)
    return _regression(_columns(np.ones(d["N"]), height, male, height * male), np.log(d["earn"]), None)


def _mesquite(d):
    one, two, height = (np.asarray(d[name], float) for name in ("diam1", "diam2", "canopy_height"))
    X = _columns(
        np.ones(d["N"]), np.log(one * two * height), np.log(one * two), np.log(one / two),
        np.log(d["total_height"]), np.log(d["density"]), d["group"],
    )  # fmt: skip
    return _regression(X, np.log(d["weight"]), None)


def _blr(d):
    return _regression(np.asarray(d["X"], float), d["y"], pr.half_normal(10), pr.normal(0, 10))


def _autoregression(d):
    """Order K; beta has the constant first."""
    y, K = np.asarray(d["y"], float), d["K"]
    X = _columns(np.ones(len(y) - K), *(y[K - k : len(y) - k] for k in range(1, K + 1)))
    made = _regression(X, y[K:], pr.half_cauchy(2.5), pr.normal(0, 10))
    return *made[:4], lambda p: {"alpha": p.beta[0], "lag": p.beta[1:]}


def _kilpisjarvi(d):
    X = _columns(np.ones(d["N"]), d["x"])
    beta = pr.normal([d["pmualpha"], d["pmubeta"]], [d["psalpha"], d["psbeta"]])
    made = _regression(X, d["y"], None, beta)
    return *made[:4], lambda p: {"alpha": p.beta[0], "slope": p.beta[1]}


def _pooled(d):
    X = _columns(np.ones(d["N"]), d["floor_measure"])
    made = _regression(X, d["log_radon"], pr.half_normal(1), pr.normal(0, 10))
    return *made[:4], lambda p: {"alpha": p.beta[0], "sigma_y": p.sigma, "slope": p.beta[1]}


def _nes(d):
    X = _columns(np.ones(d["N"]), d["income"])
    s = 2.0 * np.asarray(d["vote"]) - 1
    return logistic, (X, s), {"beta": sd.real(2)}, {}, lambda p: {"alpha": p.beta[0], "slope": p.beta[1]}


def _credit(d):
    X, s = np.asarray(d["X"], float), 2.0 * np.asarray(d["y"]) - 1
    size = X.shape[1]
    return logistic, (X, s), {"beta": sd.real(size)}, {"beta": pr.normal(0, 1)}, lambda p: {"weights": p.beta}


def _poisson(d):
    year = np.asarray(d["year"], float)
    parameters = {"alpha": sd.interval(-20, 20), "beta": sd.interval(-10, 10, 3)}
    data = (_columns(year, year**2, year**3), np.asarray(d["C"], float))
    return counts, data, parameters, {}, lambda p: {f"beta{i + 1}": p.beta[i] for i in range(3)}


def _schools(d):
    parameters = {"mu": sd.real(), "tau": sd.positive(), "z": sd.real(d["J"])}
    priors = {"mu": pr.normal(0, 5), "tau": pr.half_cauchy(5), "z": pr.normal(0, 1)}
    data = (np.asarray(d["y"], float), np.asarray(d["sigma"], float))
    return schools, data, parameters, priors, lambda p: {"theta": p.mu + p.tau * p.z}


def _radon(d):
    data = (
        _columns(d["log_uppm"], d["floor_measure"]),
        np.asarray(d["county_idx"], np.int64) - 1,
        np.asarray(d["log_radon"], float),
    )
    parameters = {"mu": sd.real(), "spread": sd.positive(), "beta": sd.real(2), "sigma": sd.positive()}
    parameters |= {"z": sd.real(d["J"])}
    priors = {"mu": pr.normal(0, 10), "spread": pr.half_normal(1), "beta": pr.normal(0, 10)}
    priors |= {"sigma": pr.half_normal(1), "z": pr.normal(0, 1)}
    return radon, data, parameters, priors, lambda p: {
        "alpha": p.mu + p.spread * p.z, "mu_alpha": p.mu, "sigma_alpha": p.spread, "sigma_y": p.sigma
    }  # fmt: skip


def _mixture(d):
    parameters = {"mu": sd.ordered(2), "sigma": sd.positive(2), "theta": sd.unit()}
    priors = {"mu": pr.normal(0, 2), "sigma": pr.half_normal(2), "theta": pr.beta(5, 5)}
    return mixture, np.asarray(d["y"], float), parameters, priors, None


def _seeds(d):
    one, two = np.asarray(d["x1"], float), np.asarray(d["x2"], float)
    data = (
        _columns(np.ones(d["I"]), one, two, one * two),
        np.asarray(d["n"], float),
        np.asarray(d["N"], float),
    )
    parameters = {"beta": sd.real(4), "tau": sd.positive(), "z": sd.real(d["I"])}
    priors = {"beta": pr.normal(0, 1000), "tau": pr.gamma(0.001, 0.001), "z": pr.normal(0, 1)}
    names = ("alpha0", "alpha1", "alpha2", "alpha12")
    return seeds, data, parameters, priors, lambda p: {
        "b": p.z * p.tau**-0.5, "sigma": p.tau**-0.5, **{name: p.beta[i] for i, name in enumerate(names)}
    }  # fmt: skip


MODELS = {
    "kidiq-kidscore_momiq": lambda d: _kidiq(d, "iq"),
    "kidiq-kidscore_momhsiq": lambda d: _kidiq(d, "hs", "iq"),
    "kidiq-kidscore_interaction": lambda d: _kidiq(d, "hs", "iq", "both"),
    "earnings-logearn_interaction": _earnings,
    "mesquite-logmesquite_logvas": _mesquite,
    "sblrc-blr": _blr,
    "sblri-blr": _blr,
    "arK-arK": _autoregression,
    "kilpisjarvi_mod-kilpisjarvi": _kilpisjarvi,
    "radon_all-radon_pooled": _pooled,
    "nes_logit_data-nes_logit_model": _nes,
    "german_credit_logistic": _credit,
    "GLM_Poisson_Data-GLM_Poisson_model": _poisson,
    "eight_schools-eight_schools_noncentered": _schools,
    "radon_mn-radon_hierarchical_intercept_noncentered": _radon,
    "low_dim_gauss_mix-low_dim_gauss_mix": _mixture,
    "seeds_data-seeds_model": _seeds,
}
# Names of the reference that are entries of other names here.
ALIASES = {
    "nes_logit_data-nes_logit_model": {"beta[1]": "slope"},
    "radon_all-radon_pooled": {"beta": "slope"},
    "kilpisjarvi_mod-kilpisjarvi": {"beta": "slope"},
    "arK-arK": {f"beta[{k}]": f"lag[{k}]" for k in range(1, 6)},
}


def _linear(name, d):
    X, y, priors = linear(name, d)
    return normal, (X, y), {"beta": sd.real(X.shape[1]), "sigma": sd.positive()}, priors, None


MODELS |= {name: functools.partial(_linear, name) for name in LINEAR} | SERIES | PROCESSES


def _is_there(folder, name):
    """Whether FOLDER has a posterior and its reference."""
    known = folder / "posterior_database" / "posteriors" / f"{name}.json"
    if known.exists():
        return json.loads(known.read_text()).get("reference_posterior_name") is not None
    return (folder / name / "reference.json").exists()


def _read(folder, name):
    """Data and reference moments of a posterior, of either form of FOLDER."""
    if (folder / "posterior_database").is_dir():
        return read(folder, name)
    data = json.loads((folder / name / "posterior.json").read_text())["data"]
    return data, json.loads((folder / name / "reference.json").read_text())["summary"]


def run(folder, name, seed=0):
    """Sample a posterior twice; returns its record."""
    data, reference = _read(folder, name)
    density, rows, parameters, priors, derived = MODELS[name](data)
    options = {"data": rows, "parameters": parameters, "priors": priors, "random_state": seed}
    seconds = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)  # the table has the verdict
        for _ in range(2):
            start = time.process_time()
            posterior = sd.sample(density, deterministic=derived, **options)
            seconds.append(time.process_time() - start)
    return {"name": name} | compared(posterior, reference, ALIASES.get(name, {})) | {
        "first": round(seconds[0], 2), "later": round(seconds[1], 3),
        "method": posterior.method.split(":")[0],
        "verdict": posterior.diagnostics.verdict, "level": posterior.diagnostics.level,
    }  # fmt: skip


def compared(posterior, reference, aliases):
    """Errors against a reference, by the names of entries, which count from one there."""
    columns = {from_one(name): j for j, name in enumerate(posterior.names)}
    places = [columns[aliases.get(name, name)] for name in reference]
    mean, sds = posterior.draws.mean(axis=0)[places], posterior.draws.std(axis=0)[places]
    theirs = {key: np.array([one[key] for one in reference.values()]) for key in ("mean", "sd")}
    worth = posterior.summary()["ess"][places]
    return {
        "parameters": len(reference),
        "error": round(float(np.sqrt(np.mean(((mean - theirs["mean"]) / theirs["sd"]) ** 2))), 4),
        "sd_ratio": round(float(np.exp(np.abs(np.log(sds / theirs["sd"])).max())), 3),
        "least_ess": float(np.min(worth)),
    }


def from_one(name):
    """The name of an entry, ``"beta[0,2]"``, counted from one: ``"beta[1,3]"``."""
    base, _, index = name.partition("[")
    if not index:
        return name
    return f"{base}[{','.join(str(int(i) + 1) for i in index[:-1].split(','))}]"


def table(records):
    """The table of a record, in Markdown."""
    lines = [
        "| posterior | parameters | sampler | error of means, sd | ratio of sd | CPU s, first | later | "
        "ESS a CPU s | verdict |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in records:
        speed = one["least_ess"] / one["later"]
        wrong = " **wrong**" if one["level"] < 2 and one["error"] > WRONG[one["level"]] else ""
        lines.append(
            f"| {one['name']} | {one['parameters']} | {one['method']} | {one['error']:.3f} | "
            f"{one['sd_ratio']:.2f} | {one['first']:.1f} | {one['later']:.2f} | "
            f"{speed:,.0f} | {one['verdict']}{wrong} |"
        )
    return "\n".join(lines)


def main(arguments=None):
    """Run from a command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder of posteriors")
    parser.add_argument("--only", nargs="+", choices=list(MODELS), help="by default all that FOLDER has")
    parser.add_argument("--out", type=Path, help="folder of posteriordb.json")
    given = parser.parse_args(arguments)
    records = []
    for name in given.only or [name for name in MODELS if _is_there(given.folder, name)]:
        records.append(run(given.folder, name))
        print(json.dumps(records[-1]), flush=True)
    print(table(records))
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "posteriordb.json").write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()
