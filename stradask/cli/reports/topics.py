"""The report of a fitted topic model."""

import math

from ...errors import DataError

N_WORDS = 10


def report(estimator, data, test):
    """Return figures and topics of a fitted topic model, see `stradask.registry.Model`."""
    seconds, tokens = (float(estimator.history_[name].sum()) for name in ("seconds", "updates"))
    joint = float(estimator.log_likelihood_[-1])
    perplexity = None
    if test is not None:
        perplexity = estimator.perplexity(test.X, **getattr(test, "keywords", {}))
    document = {
        "sweeps": int(estimator.n_iter_),
        "seconds": seconds,
        "tokens_per_second": tokens / seconds,
        "log_likelihood_per_token": joint,
        "held_out_perplexity": perplexity,
    }
    lines = [
        f"fit          {estimator.n_iter_} sweeps in {seconds:.3g} s, "
        f"{tokens / seconds / 1e6:.3g} million tokens/s",
        f"likelihood   {joint:.4f}  log p(words, topics) per token",
    ]
    if test is not None:
        held_out = f"{test.X.shape[0]:,} held-out documents, half of each observed"
        lines.append(f"perplexity   {perplexity:,.1f}  on {held_out}")
        document["held_out_documents"] = test.X.shape[0]
    if hasattr(estimator, "n_topics_interval_"):
        low, high = estimator.n_topics_interval_.tolist()
        document |= {"n_topics": estimator.n_topics_, "n_topics_interval": [low, high]}
        lines.append(f"topics       {estimator.n_topics_}  (90 % interval {low} to {high})")
    n_words = min(N_WORDS, estimator.n_features_in_)
    topics = estimator.topics(n_words=n_words)
    return document | {"topics": as_documents(topics)}, "\n".join([*lines, "", str(topics)])


def report_covariates(estimator, data, test):
    """As `report`, and the effects of the covariates."""
    document, text = report(estimator, data, test)
    if len(estimator.coef_names_) == 1:
        return document, text
    try:
        effects = estimator.effects()
    except DataError as error:  # of a fit with few sweeps: the model is kept
        return document | {"effects": None}, f"{text}\n\nno effects of covariates: {error}"
    found = {"names": effects.names, "level": effects.level}
    found |= {name: getattr(effects, name).tolist() for name in ("mean", "low", "high")}
    return document | {"effects": found}, f"{text}\n\n{effects}"


def report_responses(estimator, data, test):
    """As `report`, with the coefficients of the topics, and how well held-out responses are predicted."""
    import numpy as np

    document, text = report(estimator, data, test)
    coef = np.atleast_2d(estimator.coef_)
    labels = [str(label) for label in getattr(estimator, "classes_", ["coefficient"])]
    names = [" ".join(words) or "(no tokens)" for words in estimator.topics(n_words=3)]
    document |= {
        "coefficients": dict(zip(labels, coef.tolist(), strict=True)),
        "intercept": np.asarray(estimator.intercept_).tolist(),
    }
    width = max(max(map(len, names)), 8)
    wide = max(12, *(len(label) + 2 for label in labels))
    lines = [" " * (width + 10) + "".join(f"{label:>{wide}}" for label in labels)]
    lines += [
        f"topic {k:<3} {name:<{width}}" + "".join(f"{value:>{wide}.4g}" for value in coef[:, k])
        for k, name in enumerate(names)
    ]
    if test is not None:
        own, line = score_of_responses(estimator, test)
        document |= own
        text = f"{line}\n{text}"
    return document, "\n".join([text, "", *lines])


def score_of_responses(estimator, test):
    """Return the score of predicted responses, for JSON and as a line."""
    what = {"number": "R^2", "class": "accuracy", "count": "deviance explained"}[estimator.response]
    value = estimator.score(test.X, test.y)
    return {what.lower().replace(" ", "_").replace("^", ""): value}, f"{what:<12} {value:.4f}  of responses"


def report_over_time(estimator, data, test):
    """As `report`, and the words and shares of topics in the slices."""
    document, text = report(estimator, data, test)
    n_words = min(N_WORDS, estimator.n_features_in_)
    found = [estimator.over_time(k, n_words=n_words) for k in range(len(estimator.doc_topic_prior_))]
    shares = estimator.shares_over_time()
    document |= {
        "drift": estimator.drift_,
        "slices": [str(label) for label in estimator.slices_],
        "words_over_time": [topic.top_words for topic in found],
        "shares_over_time": {
            "slices": [str(label) for label in shares.groups],
            "shares": [
                [None if math.isnan(share) else share for share in row] for row in shares.shares.tolist()
            ],
        },
    }
    parts = [text, f"drift        {estimator.drift_:.3f} a slice", *map(str, found)]
    return document, "\n\n".join(parts)


def check_test(test, option):
    """Refuse held-out documents that cannot be judged, before the fit; they came by that option."""
    from ...errors import DataError

    if math.floor(test.X.sum(axis=1).max()) < 2:
        raise DataError(
            f"{option}: no held-out document has two tokens, so none can be completed; take more documents"
        )


def as_documents(topics):
    """Return topics in a form for JSON."""
    documents = [
        {
            "topic": k,
            "share": float(share),
            "words": words,
            "probabilities": probabilities[: len(words)].tolist(),
        }
        for k, (words, share, probabilities) in enumerate(
            zip(topics, topics.shares, topics.probabilities, strict=True)
        )
    ]
    if topics.rank_by == "probability":
        return documents
    ranks = zip(documents, topics.weights.tolist(), strict=True)
    return [document | {topics.rank_by: weights[: len(document["words"])]} for document, weights in ranks]
