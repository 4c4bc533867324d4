"""The pictures of the demo of topic models."""

import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

from ..benchmarks.pages.page import COLOURS
from .drawing import OURS, THEIRS, draw_curve, draw_level, make_axes, write_beside

MAP_DOCUMENTS, QUICK_MAP_DOCUMENTS = 1500, 400
SHOWN_PACKAGES = 7  # with a colour of their own; the rest share a grey
WORDS_ON_MAP = 2
EXPLORED = 2000  # documents on the page of topics


def add_topics(page, settings, text, model, topics, ours, sklearn):
    """Add the part of the topic models to the page."""
    train = text.train.describe()
    page.heading("Topic models: what is the documentation of your Python packages about?")
    page.text(
        f"Latent Dirichlet allocation reads {train['documents']:,} docstrings of {_listed(text.versions)} "
        f"and explains each as a mixture of {settings.n_components} topics. A topic is a list of words with "
        f"probabilities, learned without labels. {model.n_iter_} sweeps of collapsed Gibbs sampling over "
        f"{train['tokens']:,} words took {ours.seconds[-1]:.1f} seconds on one thread."
    )
    page.code(CODE.format(k=settings.n_components, sweeps=model.n_iter_, seed=settings.seed))
    page.subheading("The topics")
    page.text("Words by their probability within the topic; the heading says how much of the text it covers.")
    page.bars(
        (f"{k} · {share:.1%} of the text", list(zip(words, probabilities, strict=True)))
        for k, (words, share, probabilities) in enumerate(
            zip(topics, topics.shares.tolist(), topics.probabilities.tolist(), strict=True)
        )
    )
    page.subheading("The page to read them on")
    page.text("Choose a topic on the map or in the list. The slider ranks words by how typical they are.")
    page.code('lda.explore(path="topics.html", vocabulary=vocabulary, names=names, groups=packages)')
    page.embed(explorer(model, text), "Topics, their words and documents")
    page.subheading("The fit, compared with scikit-learn")
    page.pair(objective(model), perplexity(text, ours, sklearn))
    page.text(HOW)
    page.subheading("Topics of each package")
    page.figure(*by_package(text, model, topics))
    page.subheading("A map of documents and topics")
    page.figure(*document_map(text, model, topics, settings))


CODE = """
import stradask as sd

X, vocabulary = sd.datasets.load_docstrings()
lda = sd.LatentDirichletAllocation({k}, max_iter={sweeps}, random_state={seed}).fit(X)
print(lda.topics(vocabulary))
"""
HOW = """
Both learn from the same training documents on one thread, and the same function scores both. It reads one
half of the words of each held-out document, drawn once, and predicts the other half. The clock stops while a
model is scored, and compiling is not counted. stradask has its default priors, 0.1 for topics in documents
and 0.01 for words in topics. scikit-learn's online variational Bayes has the priors 1/K and 0.1 and batches
of 512 documents: the best for it of four of each that were tried.
"""


def explorer(model, text):
    """Return the page of `LatentDirichletAllocation.explore`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "topics.html"
        model.explore(
            path=path,
            vocabulary=text.train.vocabulary,
            names=text.train.names,
            groups=text.packages,
            n_documents=EXPLORED,
        )
        return path.read_text(encoding="utf-8")


def objective(model):
    """Return the joint log-likelihood against time: figure, caption, description."""
    values = model.history_["objective"]
    measured = ~np.isnan(values)
    seconds, values = model.history_["seconds"].cumsum()[measured], values[measured]
    axes = make_axes("seconds of training", "log p(words, topics) per word")
    draw_curve(axes, seconds, values, OURS, markersize=4)
    axes.set_xlim(left=0)
    caption = "What the sampler raises: the joint log-likelihood per word, measured every 10 sweeps."
    said = f"A curve that rises from {values[0]:.2f} to {values[-1]:.2f} in {seconds[-1]:.1f} seconds."
    return axes.figure, caption, said


def perplexity(text, ours, sklearn):
    """Return both held-out perplexities against seconds."""
    # The names next to the curves need the rest of the width.
    axes = make_axes("seconds of training (log scale)", "held-out perplexity", width=3.9)
    highest_end = max(ours.values[-1], sklearn.values[-1])
    for curve, colour in ((ours, OURS), (sklearn, THEIRS)):
        draw_curve(axes, curve.seconds, curve.values, colour, markersize=4)
        above = curve.values[-1] == highest_end
        offset, va = ((7, 2), "bottom") if above else ((7, -2), "top")
        end = curve.seconds[-1], curve.values[-1]
        write_beside(axes, curve.name, end, colour, offset, fontsize=11, weight="bold", va=va)
    draw_level(axes, text.unigram, "word frequencies alone", linewidth=1.5, fontsize=10)
    axes.set_xscale("log")
    axes.margins(y=0.1)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    caption = (
        "How well unseen words are predicted, lower is better: perplexity of the held-out halves of "
        f"{text.observed.shape[0]:,} documents."
    )
    said = ", ".join(
        f"{curve.name} ends at {curve.values[-1]:,.0f} after {curve.seconds[-1]:.1f} seconds"
        for curve in (ours, sklearn)
    )
    return axes.figure, caption, f"Falling curves: {said}; word frequencies alone give {text.unigram:,.0f}."


def by_package(text, model, topics):
    """Return the heat map of topics by package."""
    from matplotlib.colors import PowerNorm

    packages, share = package_shares(text.packages, model.doc_topic_counts_)
    # Topics in the order of the package they are most of, so that blocks show.
    order = np.lexsort((-share.max(axis=0), share.argmax(axis=0)))
    axes = make_axes(height=1.3 + 0.2 * len(order))
    # The root makes small shares visible.
    scale = PowerNorm(0.5, vmin=0, vmax=100 * share.max())
    picture = axes.imshow(100 * share[:, order].T, cmap="Blues", aspect="auto", norm=scale)
    axes.set_xticks(range(len(packages)), packages, rotation=45, ha="left", rotation_mode="anchor")
    axes.set_yticks(range(len(order)), [_label(topics, k, 2) for k in order], fontsize=9)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    bar = axes.figure.colorbar(picture, ax=axes, orientation="horizontal", pad=0.02, fraction=0.03, aspect=40)
    bar.set_label("% of the package's words", fontsize=10)
    bar.outline.set_visible(False)
    bar.set_ticks([tick for tick in (1, 5, 10, 20, 40, 60, 80) if tick < 100 * share.max()])
    bar.ax.minorticks_off()
    caption = (
        "Each column adds up to 100 %: the words of a package, divided among the topics. Rows are ordered by "
        "the package that gives the topic the largest part of its words."
    )
    leading = (
        f"{name}: {' '.join(topics[row.argmax()][:3])}" for name, row in zip(packages, share, strict=True)
    )
    return axes.figure, caption, f"Heat map. The largest topic of each package: {'; '.join(leading)}."


def package_shares(packages, counts):
    """Return the packages, and for each the shares of its words by topic (rows sum to 1)."""
    names = [name for name, _ in Counter(packages.tolist()).most_common()]
    rows = [np.asarray(counts[packages == name].sum(axis=0), dtype=float).ravel() for name in names]
    return names, np.array([row / row.sum() for row in rows])


def document_map(text, model, topics, settings):
    """Return a picture in which documents of similar topics are neighbours."""
    from matplotlib.patheffects import withStroke

    documents, places = embedding(model.doc_topic_, settings)
    shares = model.doc_topic_[documents]
    group, names = grouped(text.packages)
    axes = make_axes(height=5.6)
    axes.set_position((0, 0.14, 1, 0.86))
    for i, name in enumerate(names):
        mine = group[documents] == i
        colour = COLOURS[i] if i < SHOWN_PACKAGES else "#aaaaaa"
        axes.plot(*places[mine].T, "o", markersize=2.4, markeredgewidth=0, color=colour, label=name)
    for k, (x, y) in topic_places(shares, places).items():
        axes.text(
            x,
            y,
            "\n".join(topics[k][:WORDS_ON_MAP]),
            fontsize=7.5,
            ha="center",
            va="center",
            linespacing=0.9,
            path_effects=[withStroke(linewidth=2, foreground="white", alpha=0.8)],
        )
    axes.axis("off")
    axes.figure.legend(
        *axes.get_legend_handles_labels(),
        loc="lower center",
        ncols=4,
        markerscale=3,
        frameon=False,
        fontsize=9,
    )
    caption = (
        f"{len(documents):,} training documents by t-SNE of their topic shares (Hellinger distance); the "
        "words are the two most probable of a topic, at the median of the documents that it leads, where "
        "there is room. Neighbours are alike; sizes of islands and distances between them mean little."
    )
    return (
        axes.figure,
        caption,
        f"Map of documents, coloured by package ({', '.join(names)}), with topics as words.",
    )


def embedding(doc_topic, settings):
    """Return numbers of documents and their places in the plane, the same for the same model."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    random = np.random.default_rng(settings.seed)
    most = QUICK_MAP_DOCUMENTS if settings.quick else MAP_DOCUMENTS
    documents = np.sort(random.permutation(len(doc_topic))[:most])
    # Between roots of shares, Euclid's distance is Hellinger's.
    roots = np.sqrt(doc_topic[documents]).astype(np.float32)
    neighbours = min(30, (len(documents) - 1) / 3)
    tsne = TSNE(
        perplexity=neighbours, init="pca", max_iter=250 if settings.quick else 500, random_state=settings.seed
    )
    # Threads that wait for each other by spinning take many times longer on a busy machine.
    with threadpool_limits(1):
        return documents, tsne.fit_transform(roots)


def topic_places(shares, places):
    """Return the median place of the documents that a topic leads; of topics too close, the largest."""
    leader = shares.argmax(axis=1)
    room = np.ptp(places, axis=0) * (0.12, 0.05)
    found: dict = {}
    for k, _ in Counter(leader.tolist()).most_common():
        place = np.median(places[leader == k], axis=0)
        if not any((abs(place - other) < room).all() for other in found.values()):
            found[k] = place
    return found


def grouped(packages):
    """Return the group of each document and the names of the groups: large packages, and all others."""
    names = [name for name, _ in Counter(packages.tolist()).most_common()]
    shown, rest = names[:SHOWN_PACKAGES], names[SHOWN_PACKAGES:]
    number = {name: min(i, SHOWN_PACKAGES) for i, name in enumerate(names)}
    group = np.array([number[name] for name in packages.tolist()])
    return group, shown + ([", ".join(rest)] if rest else [])


def _label(topics, k, n_words):
    return f"{' '.join(topics[k][:n_words])}  {k}"


def _listed(names):
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
