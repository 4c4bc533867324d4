"""Instructions counted in machine code: what is read of it, and how often a token passes what."""

import shutil

import numpy as np
import pytest
import saber_reference

from stradask.algorithms._streams import Purpose
from stradask.algorithms.topics.samplers.saber import SaberState, topic_weights
from stradask.benchmarks.experiments.topics import gpu_instructions
from stradask.benchmarks.gpu_fits import corpus
from stradask.errors import StradaskError
from stradask.kernels.cuda import launch
from stradask.scheduler.engine import run

TOOLS = [name for name in ("nvcc", "nvdisasm") if shutil.which(name) is None]


def _source():
    return (launch.FOLDER / gpu_instructions.FILE).read_text("utf-8")


def _machine_code():
    """As nvdisasm writes it, of a kernel with a loop over tokens, a scan in a function, and a way apart."""
    source = _source()

    def at(anchor):
        return source[: source.index(anchor)].count("\n") + 1

    token, run_, walk = at("for (int j = 0; j < m;"), at("d.lines = token.lines"), at("  for (int i = HELD;")
    return f"""
//## File "lda/saber.cu", line {at("const int m = min(each")}
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   S2R R2, SR_TID.X ;
.L_x_1:
//## File "lda/saber.cu", line {token}
        /*0020*/                   ISETP.GE.AND P0, PT, R4, R41, PT ;
        /*0030*/              @!P0 BRA `(.L_x_2) ;
//## File "lda/saber.cu", line {run_}
        /*0040*/                   BRA.DIV UR5, `(.L_x_9) ;
        /*0050*/                   SHFL.IDX PT, R15, R45, R20, 0x1f ;
//## File "philox.cuh", line 3 inlined at "lda/saber.cu", line {run_}
//## File "lda/saber.cu", line {run_}
        /*0060*/                   IADD3 R1, R1, 0x1, RZ ;
        /*0070*/                   IADD3 R1, R1, 0x1, RZ ;
.L_x_2:
//## File "lda/saber.cu", line {walk} inlined at "lda/saber.cu", line {at("draw_document(d, x, g)")}
//## File "lda/saber.cu", line {at("draw_document(d, x, g)")}
        /*0080*/                   FADD R1, R2, R3 ;
        /*0090*/               @P1 BRA `(.L_x_1) ;
        /*00a0*/                   EXIT ;
.L_x_9:
        /*00b0*/                   WARPSYNC.COLLECTIVE R19, `(.L_x_3) ;
        /*00c0*/                   BRA `(.L_x_2) ;
"""


def test_machine_code_is_counted_by_the_lines_it_comes_from():
    blocks = gpu_instructions.blocks_of(_machine_code())
    assert [len(block) for block in blocks] == [2, 2, 1, 3, 2, 1]  # without the way apart
    often = {"groups": 1 / 32, "tokens": 1.0, "runs": 0.5, "of_document": 2.0, "walks_beyond": 0.25}
    static, taken = gpu_instructions.count(blocks, often)
    walk = ("of_document", "walks_beyond")
    assert static == {("groups",): 2, ("tokens",): 2, ("runs",): 4, walk: 3}
    assert taken == pytest.approx({("groups",): 1 / 16, ("tokens",): 2, ("runs",): 2, walk: 1.5})
    told = gpu_instructions.table(
        (static, taken), often | dict.fromkeys(("lines", "draws", "own", "again"), 1)
    )
    assert told.startswith("6 instructions a token (0.50 runs, ")


def test_every_place_that_the_count_knows_is_in_the_source():
    source = _source()
    places = [gpu_instructions.line_of(source, anchor) for anchor, _ in gpu_instructions.KERNEL]
    assert places == sorted(places)
    for anchor, *_ in gpu_instructions.WITHIN:
        assert gpu_instructions.line_of(source, anchor) < places[0]
    with pytest.raises(StradaskError, match="has 0 places 'no such line'"):
        gpu_instructions.line_of(source, "no such line")


def test_without_a_compiler(monkeypatch):
    monkeypatch.setattr(gpu_instructions.shutil, "which", lambda name: None)
    with pytest.raises(StradaskError, match="nvcc is not on the PATH: it is in the CUDA toolkit"):
        gpu_instructions.disassembled("", "sm_90")


@pytest.mark.slow
@pytest.mark.parametrize("n_topics", [60, 1000])  # with words that have a tree, and without
def test_draws_are_as_often_rejected_as_a_sweep_rejects_them(n_topics):
    X, sweeps = corpus(2e4, 300), 5
    often = gpu_instructions.frequencies(X, n_topics, sweeps, n_sample=10**6)
    state = SaberState(X.tocsr(), n_topics, *gpu_instructions.priors(X, n_topics), 1, n_groups=2)
    run(state, state.schedule, max_rounds=sweeps)
    alpha, inverse, _, lift = topic_weights(state.alpha, state.totals, state.beta.sum())
    place = (state.topics, state.word_start, state.token_doc[: state.n_tokens])
    model = (alpha, inverse, lift, (1 / state.beta).astype(np.float32))
    topics, tally = saber_reference.sweep(*place, *model, 1, Purpose.SABER_SWEEP.value, sweeps)
    n = state.n_tokens
    assert often["again"] == pytest.approx(tally["again"] / n, abs=0.02)
    for name, parts in (("of_list", ["list"]), ("of_tree", ["tree", "shared"])):
        last = sum(tally[part] for part in parts) / n  # of the draws that were kept
        assert abs(often[name] / often["draws"] - last) < 0.05
    assert often["own"] - often["again"] == pytest.approx((topics == state.topics).mean(), abs=0.02)


@pytest.mark.slow
@pytest.mark.skipif(bool(TOOLS), reason=f"not on the PATH: {', '.join(TOOLS)}")
def test_a_token_takes_no_more_instructions_than_the_page_says(capsys):
    gpu_instructions.main(["--topics", "1000", "--tokens", "1e5"])
    found = int(capsys.readouterr().out.split("sm_90: ")[1].split(" instructions")[0])
    assert 100 < found < 195
