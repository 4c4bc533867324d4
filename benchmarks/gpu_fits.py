"""Fits on a GPU that `gpu_check` starts, each kind in a process of its own; a record is a line of JSON.

    python -m stradask.benchmarks.gpu_fits speed --samplers saber --tokens 1e7

`bits` holds topics against those that every machine draws, and needs no other form of the sampler for it.

A case that breaks off is a record too, and the next one begins. No sweep and no case begins when the seconds
are over.
"""

import argparse
import itertools
import json
import os
import sys
import time
import traceback
import zlib

import numpy as np
from scipy import sparse

from ..errors import DataError
from ..kernels.cuda.device import cuda_device

# Of the log-likelihood of a token, between a GPU and the CPU: one chain for both, and two of one kind.
TOLERANCE = {"saber": 0.002, "light": 0.02}
SHARES_APART = 1e-3  # of topic shares: the chains draw the same topics on both
BITS = {
    ("saber", 64): 0xFD3AF5BF,
    ("saber", 800): 0x6BB42C07,
    ("light", 64): 0x6FBB0DBD,
    ("light", 800): 0x531D436C,
}  # checksums of counts after three sweeps over `known_corpus`
BYTES_OF_A_TOKEN = {"saber": 350}  # that a sweep moves to and from the memory, about
_COPIED, _COPIES = 2**31, 10  # bytes at most, and how often
_LAST = 10  # sweeps whose speed is reported: the first half of a fit may be annealed, with longer lists
_CPU_SWEEPS = 3
# Parts of the corpus, of which one is timed: the host lays "light" out slowly.
_TIMED = {"saber": 1, "light": 10}
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
    parser.add_argument("--sweeps", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=np.inf, help="in all (default: any)")
    parser.add_argument("--corpus", help="file of the timed corpus: `corpus` writes it, `speed` reads it")
    args = parser.parse_args(arguments)
    for name, least in (("tokens", 1e4), ("sweeps", 2)):
        if not getattr(args, name) >= least:
            raise DataError(f"--{name} is {getattr(args, name)}; {least:g} or more is needed")
    for record in FITS[args.kind](args):
        print(json.dumps(record), flush=True)
    return 0


def fit(X, sampler, n_components, sweeps, device, seconds=np.inf):
    """Fit, and return the model and the seconds of its sweeps, of which the first has all that is prepared.

    No sweep but the second begins later than so many seconds after the first.
    """
    from ..algorithms.topics.lda import LatentDirichletAllocation

    clock = [time.perf_counter()]

    def watch(info):
        clock.append(time.perf_counter())
        return len(clock) > 2 and clock[-1] - clock[1] > seconds

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


def draw_corpus(args):
    """Draw the timed corpus into a file, which is there when it is whole."""
    sparse.save_npz(f"{args.corpus}.part.npz", corpus(args.tokens), compressed=False)
    os.replace(f"{args.corpus}.part.npz", args.corpus)
    yield {"what": f"a corpus of {args.tokens / 1e6:,.0f} M tokens"}


def fit_bits(args):
    """Hold the topics of small fits against those that every machine draws."""
    X, device = known_corpus(), cuda_device()
    before = device.shared_memory
    for sampler, n_topics in (key for key in BITS if key[0] in args.samplers):
        for shared in (before, SCARCE):

            def draw(sampler=sampler, n_topics=n_topics, shared=shared):
                device.shared_memory = shared
                found = bits(fit(X, sampler, n_topics, 3, "cuda")[0])
                well = found == BITS[sampler, n_topics]
                return well, "the known ones" if well else f"{found:#x}, not {BITS[sampler, n_topics]:#x}", {}

            try:
                yield case(f"topics of {sampler}, {n_topics} topics, {shared // 1024} KB shared", draw)
            finally:
                device.shared_memory = before


def known_corpus():
    """Make a corpus from whole numbers: it does not hang on a version of numpy."""
    d, w = np.arange(40)[:, None], np.arange(60)
    counts = np.maximum((7 * d + 3 * w + d * w) % 11 - 7, 0)
    counts[3] *= 20
    return sparse.csr_array(counts.astype(np.int32))


def bits(model):
    """A number that hangs on every count of a model."""
    counts = (model.word_topic_counts_, model.doc_topic_counts_)
    return zlib.crc32(b"".join(part.toarray().astype("<i4").tobytes() for part in counts))


def fit_small(args):
    """Fit and infer so little that a tool which follows every access is done with it.

    CuPy is to allocate every array by itself: of a pool, a tool sees no bounds inside.
    """
    X, device = corpus(5000, 500), cuda_device()
    if hasattr(device.xp, "cuda"):
        device.xp.cuda.set_allocator(None)
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
    """Time the last sweeps of fits, and the CPU's over a tenth of the documents."""
    deadline = time.perf_counter() + args.seconds
    drawn, known = [], {}

    def draw():
        drawn.append(sparse.load_npz(args.corpus) if args.corpus else corpus(args.tokens))
        (X,) = drawn
        return True, f"{X.shape[0]:,} documents, {X.shape[1]:,} words, {X.nnz:,} pairs", {}

    def copy():
        known["bandwidth"] = bandwidth()
        return True, f"{known['bandwidth'] / 1e12:.2f} TB/s read and written", dict(known)

    yield case("copies on the GPU", copy)
    yield case(f"a corpus of {args.tokens / 1e6:,.0f} M tokens", draw)
    cases = []
    for sampler in args.samplers:
        numbers = args.topics or SAMPLERS[sampler]
        cases += [(sampler, n, "cuda") for n in numbers]
        cases += [(sampler, numbers[0], "cpu")] if numba_works() else []
    for i, (sampler, n_components, device) in enumerate(cases if drawn else []):
        left = deadline - time.perf_counter()
        n_tokens = args.tokens / _TIMED[sampler] / (1 if device == "cuda" else 10)
        what = f"{sampler}, {n_components:,} topics, {n_tokens / 1e6:,.0f} M tokens"
        what += "" if device == "cuda" else ", CPU"
        if left > 0:
            place = (sampler, n_components, device)
            (X,) = drawn
            X = X[: -(-X.shape[0] // _TIMED[sampler])]
            yield case(what, time_sweeps, X, place, args.sweeps, left / (len(cases) - i), known)
        else:
            yield {"what": what, "result": "left out", "detail": "no time was left", "seconds": 0.0}


def numba_works():
    """Whether there is the CPU's form: numba refuses a numpy that is newer than it."""
    try:
        import numba  # noqa: F401
    except ImportError:
        return False
    return True


def bandwidth():
    """Bytes a second that copies on the device read and write."""
    device = cuda_device()
    n_bytes = min(_COPIED, device.free_memory() // 4)
    here, there = (device.zeros(n_bytes // 4, np.float32) for _ in range(2))
    seconds = []
    for _ in range(_COPIES):
        device.synchronize()
        begun = time.perf_counter()
        device.xp.copyto(there, here)
        device.synchronize()
        seconds.append(time.perf_counter() - begun)
    return 2 * here.nbytes / min(seconds)


def time_sweeps(X, place, n_sweeps, seconds, known):
    """Fit; report tokens a second, as a share of the bandwidth, or against the GPU."""
    sampler, n_components, device = place
    if device == "cpu":
        X, n_sweeps = X[: -(-X.shape[0] // 10)], min(n_sweeps, _CPU_SWEEPS)
    tokens = int(X.sum())
    model, taken = fit(X, sampler, n_components, n_sweeps, device, seconds)
    last = taken[1:][-_LAST:]  # with the log-likelihoods that are measured among them
    rate, value = tokens * len(last) / sum(last), float(model.log_likelihood_[-1])
    detail = f"{rate / 1e6:,.0f} M tokens/s in sweeps {len(taken) - len(last) + 1} to {len(taken)}"
    detail += f", log-likelihood {value:.4f}"
    if device == "cpu":
        there = known.get(place[:2])
        detail += f" on {os.cpu_count()} cores" + (f": the GPU is {there / rate:.0f} x" if there else "")
    else:
        known[place[:2]] = rate
        if sampler in BYTES_OF_A_TOKEN and "bandwidth" in known:
            share = rate * BYTES_OF_A_TOKEN[sampler] / known["bandwidth"]
            detail += f", {100 * share:.0f} % of the bandwidth"
    figures = {"sampler": sampler, "n_components": n_components, "tokens": tokens, "tokens_per_second": rate}
    figures |= {"sweep_seconds": [round(float(s), 4) for s in taken], "log_likelihood": value, "on": device}
    return True, detail, figures


def case(what, work, *arguments):
    """Return the record of some work, which returns success, a message and figures."""
    begun = time.perf_counter()
    try:
        well, detail, figures = work(*arguments)
    except Exception as error:  # the next case is to have its turn, whatever this one met
        traceback.print_exc()
        well, detail, figures = False, " ".join(f"{type(error).__name__}: {error}".split())[:300], {}
    seconds = round(time.perf_counter() - begun, 1)
    result = "passed" if well else "failed"
    return {"what": what, "result": result, "detail": detail, "seconds": seconds} | figures


FITS = {
    "bits": fit_bits,
    "small": fit_small,
    "agreement": fit_agreement,
    "profile": fit_profile,
    "corpus": draw_corpus,
    "speed": fit_speed,
}


if __name__ == "__main__":
    sys.exit(main())
