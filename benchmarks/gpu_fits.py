"""Fits on a GPU that `gpu_check` starts, each kind in a process of its own; a record is a line of JSON.

    python -m stradask.benchmarks.gpu_fits speed --samplers saber --tokens 1e7

A case that breaks off is a record too, and the next one begins. No sweep and no case begins when the seconds
are over.
"""

import argparse
import itertools
import json
import statistics
import sys
import time
import traceback

import numpy as np

from ..errors import DataError
from ..kernels.device import cuda_device

# Of the log-likelihood of a token, between a GPU and the CPU: one chain for both, and two of one kind.
TOLERANCE = {"saber": 0.002, "light": 0.02}
SHARES_APART = 1e-3  # of topic shares: the chains draw the same topics on both
SCARCE = 11 * 1024  # bytes of shared memory in which 800 topics have no room
SAMPLERS = {"saber": [1000, 10_000], "light": [10_000, 100_000]}  # and the numbers of topics to time


def main(arguments=None):
    """Do one kind of fits."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kind", choices=FITS)
    parser.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=list(SAMPLERS))
    parser.add_argument(
        "--topics", type=int, nargs="+", help="numbers to time (default: some of each sampler's)"
    )
    parser.add_argument("--tokens", type=float, default=1e8, help="of the timed corpus (default: 1e8)")
    parser.add_argument("--sweeps", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=np.inf, help="in all (default: any)")
    args = parser.parse_args(arguments)
    for name, least in (("tokens", 1e4), ("sweeps", 2)):
        if not getattr(args, name) >= least:
            raise DataError(f"--{name} is {getattr(args, name)}; {least:g} or more is needed")
    for record in FITS[args.kind](args):
        print(json.dumps(record), flush=True)
    return 0


def fit(X, sampler, n_components, sweeps, device, seconds=np.inf):
    """Fit, and return the model and the seconds of its sweeps; no sweep begins after so many seconds."""
    from ..algorithms.topics.lda import LatentDirichletAllocation

    clock = [time.perf_counter()]

    def watch(info):
        clock.append(time.perf_counter())
        return clock[-1] - clock[0] > seconds

    model = LatentDirichletAllocation(
        n_components,
        sampler=sampler,
        device=device,
        n_jobs=-1,
        max_iter=sweeps,
        doc_topic_prior=min(50 / n_components, 0.1),
        random_state=0,
    ).fit(X, callback=watch)
    return model, np.diff(clock)


def corpus(tokens, n_words=102_000, seed=1):
    """Draw a corpus with documents as long as those of NYTimes."""
    from ..datasets.generators import make_lda_corpus

    n_documents = max(int(tokens / 333), 30)
    X, *_ = make_lda_corpus(n_documents, n_words, 100, mean_length=333, random_state=seed)
    return X


def fit_small(args):
    """Fit and infer so little that a tool which follows every access is done with it."""
    X, device = corpus(5000, 500), cuda_device()
    before = device.shared_memory
    for sampler, (n_topics, shared) in itertools.product(args.samplers, ((64, before), (800, SCARCE))):
        try:
            device.shared_memory = shared  # the variants of the sources for topics that do not fit
            model, _ = fit(X, sampler, n_topics, 2, "cuda")
            model.transform(X[:2], n_sweeps=10)
            found = {"log_likelihood": float(model.log_likelihood_[-1]), "score": model.score(X[:4])}
        finally:
            device.shared_memory = before
        yield {"what": f"{sampler}, {n_topics} topics, {shared:,} bytes of shared memory"} | found


def fit_profile(args):
    """Fit for a profiler, which looks at one of the later sweeps."""
    X = corpus(args.tokens)
    for sampler in args.samplers:
        for n_components in args.topics or SAMPLERS[sampler]:
            fit(X, sampler, n_components, args.sweeps, "cuda")
            yield {"tokens": int(X.sum())}


def fit_agreement(args):
    """Compare the log-likelihood after as many sweeps on the GPU and on the CPU."""
    X = corpus(min(args.tokens, 1e6), 20_000)
    for sampler in args.samplers:
        models: dict = {}

        def agree(sampler=sampler, models=models):
            for device in ("cuda", "cpu"):
                models[device], _ = fit(X, sampler, 200, args.sweeps, device)
            there, here = (float(model.log_likelihood_[-1]) for model in models.values())
            apart = abs(there / here - 1)
            detail = f"log-likelihood {there:.4f}, CPU {here:.4f}: {100 * apart:.2f} % apart"
            values = {"log_likelihood": there, "log_likelihood_cpu": here}
            return apart < TOLERANCE[sampler], detail, values

        yield case(f"{sampler}, 200 topics, {int(X.sum()):,} tokens", agree)
        if "cpu" in models:
            yield case(f"{sampler}, inference on 200 documents", agreement_of_shares, models["cpu"], X[:200])


def agreement_of_shares(model, X):
    """Compare the topic shares of documents, and their score, on the GPU and on the CPU."""
    here, score = model.set_params(device="cpu").transform(X, n_sweeps=50), model.score(X)
    there, other = model.set_params(device="cuda").transform(X, n_sweeps=50), model.score(X)
    apart = float(abs(there - here).max())
    well = apart < SHARES_APART and abs(other / score - 1) < SHARES_APART
    return well, f"topic shares {apart:.1e} apart at most, scores {other:.4f} and {score:.4f}", {}


def fit_speed(args):
    """Time the sweeps after the first, which compiles; the corpus is drawn once."""
    deadline = time.perf_counter() + args.seconds
    drawn = []

    def draw():
        drawn.append(corpus(args.tokens))
        (X,) = drawn
        return True, f"{X.shape[0]:,} documents, {X.shape[1]:,} words, {X.nnz:,} pairs", {}

    yield case(f"a corpus of {args.tokens / 1e6:,.0f} M tokens", draw)
    cases = [(sampler, n) for sampler in args.samplers for n in args.topics or SAMPLERS[sampler]]
    for i, (sampler, n_components) in enumerate(cases if drawn else []):
        left = deadline - time.perf_counter()
        what = f"{sampler}, {n_components:,} topics, {args.tokens / 1e6:,.0f} M tokens"
        if left > 0:
            yield case(what, time_sweeps, *drawn, sampler, n_components, args.sweeps, left / (len(cases) - i))
        else:
            yield {"what": what, "result": "left out", "detail": "no time was left", "seconds": 0.0}


def time_sweeps(X, sampler, n_components, n_sweeps, seconds):
    """Fit, and tell the tokens of a second and what they came to."""
    tokens = int(X.sum())
    model, taken = fit(X, sampler, n_components, n_sweeps, "cuda", seconds)
    later = taken[1:] if len(taken) > 1 else taken
    rate, value = tokens / statistics.median(later), float(model.log_likelihood_[-1])
    detail = f"{rate / 1e6:,.0f} M tokens/s in {len(later)} sweeps, log-likelihood {value:.4f}"
    return (
        True,
        detail,
        {
            "sampler": sampler,
            "n_components": n_components,
            "tokens": tokens,
            "tokens_per_second": rate,
            "sweep_seconds": [round(float(s), 4) for s in taken],
            "log_likelihood": value,
        },
    )


def case(what, work, *arguments):
    """Do some work that tells whether it went well, in what words, and figures; give the record of it."""
    begun = time.perf_counter()
    try:
        well, detail, figures = work(*arguments)
    except Exception as error:  # the next case is to have its turn, whatever this one met
        traceback.print_exc()
        well, detail, figures = False, " ".join(f"{type(error).__name__}: {error}".split())[:300], {}
    seconds = round(time.perf_counter() - begun, 1)
    result = "passed" if well else "failed"
    return {"what": what, "result": result, "detail": detail, "seconds": seconds} | figures


FITS = {"small": fit_small, "agreement": fit_agreement, "profile": fit_profile, "speed": fit_speed}


if __name__ == "__main__":
    sys.exit(main())
