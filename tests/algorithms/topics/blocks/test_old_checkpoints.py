"""States that version 0.1 wrote of fits on threads: topics of all tokens in one array, word by word."""

import numpy as np
import pytest
from early_auto import make_early
from lda_chains import Layout, groups_of
from scipy import sparse

import stradask as sd
from stradask.algorithms.topics import fitting
from stradask.errors import CheckpointMismatch, ModelFileError
from stradask.scheduler.stores.store import Checkpoint

OLD = {
    "RotatingGibbs": ("GibbsState", "RotationSchedule"),
    "RotatingLight": ("LightState", "RotationSchedule"),
    "RotatingWarp": ("WarpState", "PassesSchedule"),
    "RotatingAuto": ("AutoState", "SwitchSchedule"),
}


@pytest.fixture(scope="module")
def corpus():
    X, *_ = sd.datasets.make_lda_corpus(900, n_features=400, n_components=8, mean_length=130, random_state=0)
    return sparse.csr_array(X.astype(np.int32))


def _lda(n_components, **options):
    options = {"max_iter": 12, "random_state": 0} | options
    return sd.LatentDirichletAllocation(n_components, **options)


def _written(path, corpus, model, seen, n_sweeps):
    """Fit so many sweeps, and write what 0.1 would have written of them."""
    made = model.fit(corpus, callback=lambda info: info.round == n_sweeps)
    program, states, header, fingerprint = seen[-1]
    layout, n_topics = Layout(corpus, len(program.shards)), model.n_components
    part = program.current if made.sampler == "auto" else program
    topics = np.empty(layout.n_tokens, part.kind)
    for g, state in enumerate(states):
        ranges = zip(*layout.bounds[g : g + 2, part.words.ids], strict=True)
        places = np.concatenate([np.arange(*pair) for pair in ranges])
        topics[places] = part.own_topics(state, 0, len(state["topics"]))
    arrays = {"topics": topics, "seed": program.arrays()["seed"], "annealed": np.int64(part.annealed)}
    arrays |= {"alpha": part.alpha, "beta": part.beta}
    if made.sampler == "auto":
        arrays |= program.handover.arrays()
    if part.name == "warp":
        arrays["proposals"] = topics
    elif n_topics > 256 or part.name == "light":
        arrays |= _lists(layout, states, n_topics)
    arrays = {f"program/{name}": np.asarray(array) for name, array in arrays.items()}
    if made.sampler == "auto":
        arrays["schedule/phase"] = np.array([program.handover.done], np.int64)
    name, schedule = OLD[type(program).__name__]
    n_blocks = 2 if name == "WarpState" else len(states)
    identity = {"program": name, "schedule": schedule, "n_shards": len(states), "n_blocks": n_blocks}
    Checkpoint(path).save(n_sweeps, arrays, header, fingerprint | identity)
    return arrays


def _lists(layout, states, n_topics):
    """Lists of all documents one after the other, with as many bits for counts as the longest needs."""
    shift = int(layout.lengths.max()).bit_length()
    parts, n_lines = [], []
    for state in states:
        own = state["documents"].shift
        entries = state["entries"][: state["documents"].line_start[-1] * 16]
        counts = entries & np.uint32((1 << own) - 1)
        parts.append((entries >> np.uint32(own)) << np.uint32(shift) | counts)
        n_lines.append(state["n_lines"])
    return {"entries": np.concatenate([*parts, np.zeros(64, np.uint32)]), "n_lines": np.concatenate(n_lines)}


@pytest.fixture
def seen(monkeypatch):
    """Program, shards, history and fingerprint of each fit, as they are at its end."""
    found, run = [], fitting.run

    def watched(program, schedule, *, fingerprint, **options):
        done = None
        collect = program.collect

        def kept(ask):
            states = ask(lambda session, messages: session.measure(messages) and session.states)
            found.append((program, states, done, fingerprint))
            return collect(ask)

        program.collect = kept
        done = run(program, schedule, fingerprint=fingerprint, **options)
        columns = {name: values.tolist() for name, values in done.history.as_dict().items()}
        header = {"history": columns, "plan": None, "done": False}
        found[-1] = (*found[-1][:2], header, found[-1][3])
        return done

    monkeypatch.setattr(fitting, "run", watched)
    return found


@pytest.mark.parametrize(
    ("sampler", "n_components", "cut"),
    [
        ("gibbs", 70, 7),
        ("gibbs", 300, 7),
        ("light", 70, 7),
        ("auto", 300, 11),
        ("warp", 70, 7),
        ("auto", 70, 4),
    ],
)
def test_a_fit_goes_on_from_what_0_1_wrote(corpus, tmp_path, seen, monkeypatch, sampler, n_components, cut):
    assert groups_of(corpus, n_components) > 1
    make_early(monkeypatch, most=9)
    with monkeypatch.context() as patched:
        patched.setattr(fitting, "go_on_from_one_process", lambda *a: None)
        begun = _lda(n_components, sampler=sampler, checkpoint=tmp_path / "aside")
        arrays = _written(tmp_path / "old", corpus, begun, seen, cut)
    rounds = []
    model = _lda(n_components, sampler=sampler, checkpoint=tmp_path / "old")
    model.fit(corpus, callback=lambda info: rounds.append(info.round))
    assert rounds == list(range(cut + 1, 13))
    assert model.word_topic_counts_.sum() == corpus.sum()
    whole = _lda(n_components, sampler=sampler).fit(corpus)
    if "program/proposals" not in arrays:  # warp begins with new ones
        assert (model.word_topic_counts_ != whole.word_topic_counts_).nnz == 0
        assert model.sampler_ == whole.sampler_
    else:
        assert model.perplexity(corpus) == pytest.approx(whole.perplexity(corpus), rel=0.05)
    again = _lda(n_components, sampler=sampler, checkpoint=tmp_path / "old").fit(
        corpus
    )  # as it is written now
    assert (again.word_topic_counts_ != model.word_topic_counts_).nnz == 0


def test_what_is_damaged_or_of_another_fit_is_refused(corpus, tmp_path, seen):
    begun = _lda(300, sampler="gibbs", checkpoint=tmp_path / "aside")
    arrays = _written(tmp_path / "old", corpus, begun, seen, 3)
    with pytest.raises(CheckpointMismatch, match="doc_topic_prior"):
        _lda(300, sampler="gibbs", checkpoint=tmp_path / "old", doc_topic_prior=0.3).fit(corpus)
    with pytest.raises(CheckpointMismatch, match="program"):
        _lda(300, sampler="light", checkpoint=tmp_path / "old").fit(corpus)
    header, fingerprint = seen[0][2:]
    identity = {"program": "GibbsState", "schedule": "RotationSchedule"}
    identity |= {"n_shards": len(seen[0][1]), "n_blocks": len(seen[0][1])}
    for name, wrong in (
        ("topics", arrays["program/topics"] + np.uint16(300)),
        ("topics", arrays["program/topics"][:-1]),
        ("entries", arrays["program/entries"][::-1].copy()),
        ("entries", arrays["program/entries"][:50]),
        ("n_lines", arrays["program/n_lines"][:-5]),
        ("alpha", np.full(300, np.nan)),
    ):
        path = tmp_path / f"{name}-{len(wrong)}"
        Checkpoint(path).save(3, arrays | {f"program/{name}": wrong}, header, fingerprint | identity)
        with pytest.raises(ModelFileError, match="do not fit"):
            _lda(300, sampler="gibbs", checkpoint=path).fit(corpus)
