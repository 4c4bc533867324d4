"""Linear regressions of posteriordb: columns and response of each, written from its Stan program.

All are ``y ~ N(X beta, sigma)`` with flat priors, but for those that `PRIORS` names.
"""

import io
import json
import zipfile
from pathlib import Path

import numpy as np

import stradask as sd

pr = sd.priors


def read(root, name):
    """Data and reference moments of a posterior in a copy of the repository."""
    root = Path(root) / "posterior_database"
    known = json.loads((root / "posteriors" / f"{name}.json").read_text())
    data = _unzipped(root / "data" / "data" / f"{known['data_name']}.json.zip")
    reference = f"{known['reference_posterior_name']}.json"
    path = root / "reference_posteriors" / "draws" / "draws" / f"{reference}.zip"
    if not path.exists():
        return data, _moments(root / "reference_posteriors" / "summary_statistics", reference)
    draws = _unzipped(path)
    joined = {key: np.concatenate([chain[key] for chain in draws]) for key in draws[0]}
    return data, {key: {"mean": x.mean(), "sd": x.std(ddof=1)} for key, x in joined.items()}


def _moments(root, reference):
    """Mean and sd of a copy without draws, from their stored means and mean squares."""
    one, two = (
        json.loads((root / name / name / reference).read_text())
        for name in ("mean_value", "mean_squared_value")
    )
    squares = dict(zip(two["names"], two["mean_squared_value"], strict=True))
    means = dict(zip(one["names"], one["mean_value"], strict=True))
    return {name: {"mean": x, "sd": np.sqrt(squares[name] - x * x)} for name, x in means.items()}


def _unzipped(path):
    with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as archive:
        return json.loads(archive.read(archive.namelist()[0]))


def _standard(x, size=1):
    return (x - x.mean()) / (size * x.std(ddof=1))


def _indicators(x, levels):
    return [x == level for level in levels]


def _product(one, two):
    return [one, two, one * two]


def _mesquite(d):
    area, shape = d["diam1"] * d["diam2"], d["diam1"] / d["diam2"]
    return np.log(area * d["canopy_height"]), np.log(area), np.log(shape), np.log(d["total_height"])


def _logged(d, *names):
    return [np.log(d[name]) for name in names]


def _nes(d):
    age = _indicators(d["age_discrete"], (2, 3, 4))
    return [d["real_ideo"], d["race_adj"], *age, d["educ1"], d["gender"], d["income"]], d["partyid7"]


# name: function of the data, columns after the constant one, and the response
LINEAR = {
    "kidiq-kidscore_momhs": lambda d: ([d["mom_hs"]], d["kid_score"]),
    "kidiq_with_mom_work-kidscore_mom_work": lambda d: (
        _indicators(d["mom_work"], (2, 3, 4)),
        d["kid_score"],
    ),
    "kidiq_with_mom_work-kidscore_interaction_c": lambda d: (
        _product(d["mom_hs"] - d["mom_hs"].mean(), d["mom_iq"] - d["mom_iq"].mean()),
        d["kid_score"],
    ),
    "kidiq_with_mom_work-kidscore_interaction_c2": lambda d: (
        _product(d["mom_hs"] - 0.5, d["mom_iq"] - 100),
        d["kid_score"],
    ),
    "kidiq_with_mom_work-kidscore_interaction_z": lambda d: (
        _product(_standard(d["mom_hs"], 2), _standard(d["mom_iq"], 2)),
        d["kid_score"],
    ),
    "earnings-earn_height": lambda d: ([d["height"]], d["earn"]),
    "earnings-log10earn_height": lambda d: ([d["height"]], np.log10(d["earn"])),
    "earnings-logearn_height": lambda d: ([d["height"]], np.log(d["earn"])),
    "earnings-logearn_height_male": lambda d: ([d["height"], d["male"]], np.log(d["earn"])),
    "earnings-logearn_logheight_male": lambda d: ([np.log(d["height"]), d["male"]], np.log(d["earn"])),
    "earnings-logearn_interaction_z": lambda d: (
        _product(_standard(d["height"]), d["male"]),
        np.log(d["earn"]),
    ),
    "mesquite-mesquite": lambda d: (
        [d[n] for n in ("diam1", "diam2", "canopy_height", "total_height", "density", "group")],
        d["weight"],
    ),
    "mesquite-logmesquite": lambda d: (
        [*_logged(d, "diam1", "diam2", "canopy_height", "total_height", "density"), d["group"]],
        np.log(d["weight"]),
    ),
    "mesquite-logmesquite_logva": lambda d: ([*_mesquite(d)[:2], d["group"]], np.log(d["weight"])),
    "mesquite-logmesquite_logvash": lambda d: ([*_mesquite(d), d["group"]], np.log(d["weight"])),
    "mesquite-logmesquite_logvolume": lambda d: ([_mesquite(d)[0]], np.log(d["weight"])),
}
LINEAR |= {f"nes{year}-nes": _nes for year in (*range(1972, 2000, 4), 2000)}
PRIORS = {"kidiq-kidscore_momhs": {"sigma": pr.half_cauchy(2.5)}}


def linear(name, data):
    """Columns (with one of ones), response and priors of a regression."""
    arrays = {key: np.asarray(value, float) for key, value in data.items()}
    columns, y = LINEAR[name](arrays)
    X = np.ascontiguousarray(np.column_stack([np.ones(len(y)), *columns]), dtype=float)
    return X, np.ascontiguousarray(y), PRIORS.get(name, {})
