"""Default runs: a quick look at every family, and the tables of the documentation.

A recipe is a command line of ``stradask bench``, so that each can be tried by itself. File names without a
folder are looked for in the folder of ``--data``; what is not there is left out, and named.
"""

# ``stradask bench --quick``: data generated or bundled, peers that are installed. What compiles longest comes
# first: the others do it meanwhile.
QUICK = (
    "mcmc --dataset logistic eight-schools --param n_samples=300 n_warmup=300 --max-seconds 20",
    "lda --dataset synthetic --param n_components=50 --max-seconds 2",
    "lasso --dataset a c --param divisor=10,100 --max-seconds 2",
    "sparse-logistic --dataset a --param divisor=10,100 --max-seconds 2",
    "logistic --dataset dense words --max-seconds 2",
    "structured --dataset group-wide poisson-wide --max-seconds 2",
    "everyday",
    "mf --dataset generated",
    "implicit --dataset generated",
    "recommend --dataset generated",
    "topics-models --dataset generated",
    "lda-large",
    "ssp --param cluster=False threads=False",
    "strads --param cluster=False sizes=32",
    "rotation --param kill=False max_iter=6 n_components=50",
    "placement",
    "plan --dataset even",
    "pipeline --param places=2 micro_batches=4 memory=False",
    "allreduce --param megabytes=8",
    "networks --param epochs=2 width=8 accuracy=0.3",
    "ceilings",
)
NEEDS = {"networks": "torch"}  # families that run nothing without a package

_LDA_PEERS = "--against tomotopy sklearn gensim"
_SPARSE = "rcv1_small.svm.txt.gz dorothea.svm.txt.gz"
_TEXTS = "basehock.svm.txt.gz pcmac.svm.txt.gz mushrooms.svm.txt.gz a9a.svm.txt.gz"
_FEW_COLUMNS = "mushrooms.svm.txt.gz a9a.svm.txt.gz cod-rna.svm.txt.gz cina.svm.txt.gz"
_FEW_ROWS = "basehock.svm.txt.gz pcmac.svm.txt.gz relathe.svm.txt.gz rcv1_small.svm.txt.gz"
_SMOOTH_PEERS = "--against liblinear sklearn-lbfgs sklearn-newton-cg snapml"
_MF = "mf --dataset {} --against libmf --param n_components={} --max-seconds {}"
_IMPLICIT = "implicit --dataset ml-1m.csv.gz --against implicit --param n_components={} --max-seconds {}"

# ``stradask bench FAMILY --full``: the folder of the records, and what fills it. Medians are of three rounds;
# where a system needs minutes for a problem, of one.
FULL = {
    "lda-20news": (
        f"lda --dataset docword.20news.txt.gz {_LDA_PEERS} --param n_components=100 --max-seconds 20",
    ),
    "lda-20news-1000": (
        "lda --dataset docword.20news.txt.gz --against tomotopy topica warplda "
        "--param n_components=1000 doc_topic_prior=0.05 --max-seconds 30",
    ),
    "lda-large": ("lda-large",),
    "lasso": (
        f"lasso --dataset a b d {_SPARSE} debian_size.svm.txt.gz --against sklearn celer skglm adelie",
        "lasso --dataset c news20.svm.txt.gz --against sklearn celer skglm adelie "
        "--max-seconds 15 --repeats 1",
    ),
    "sparse-logistic": (
        f"sparse-logistic --dataset a {_SPARSE} {_TEXTS} --against liblinear celer skglm adelie "
        "--max-seconds 5",
    ),
    "sparse-logistic-c": (
        f"sparse-logistic --dataset rcv1_small.svm.txt.gz {_TEXTS} cod-rna.svm.txt.gz cina.svm.txt.gz "
        "--against liblinear saga skglm --param C=0.1,1,10 --max-seconds 2",
        "sparse-logistic --dataset news20.svm.txt.gz --against liblinear saga skglm "
        "--param C=0.1,1,10 one_class=0 unit_rows=True --max-seconds 4 --repeats 1",
    ),
    "logistic": (
        f"logistic --dataset {_FEW_COLUMNS} {_SMOOTH_PEERS} sklearn-newton-cholesky --max-seconds 5",
        f"logistic --dataset {_FEW_ROWS} {_SMOOTH_PEERS} --max-seconds 5",
        "logistic --dataset covtype.svm.txt.gz --against sklearn-lbfgs sklearn-newton-cholesky snapml "
        "--param one_class=1 --max-seconds 8 --repeats 1",
        "logistic --dataset news20.svm.txt.gz --against sklearn-lbfgs sklearn-newton-cg "
        "--param C=1 unit_rows=True --max-seconds 12",
        f"logistic --dataset dense scaled wide words {_SMOOTH_PEERS} sklearn-newton-cholesky --param C=1 "
        "--max-seconds 12 --repeats 1",
    ),
    "structured": ("structured --against skglm celer adelie glum sksurv --max-seconds 3 --repeats 1",),
    "mf": (_MF.format("ml-1m.csv.gz", 32, 4),),
    "mf-64": (_MF.format("ml-1m.csv.gz", 64, 6),),
    "mf-10m": (_MF.format("generated-10m", 32, 25) + " --repeats 1",),
    "implicit": (_IMPLICIT.format(32, 4),),
    "implicit-64": (_IMPLICIT.format(64, 6),),
    "implicit-128": (_IMPLICIT.format(128, 12),),
    "recommend": ("recommend --dataset filmtrust.csv.gz ml-100k.csv.gz ml-1m.csv.gz",),
    "topics-models": ("topics-models",),
    "mcmc": ("mcmc --dataset logistic rare credit --against numpyro blackjax nutpie pymc --repeats 1",),
    "mcmc-small": (
        "mcmc --dataset poisson-gamma mixture --against numpyro blackjax nutpie pymc --repeats 1",
        "mcmc --dataset eight-schools --against numpyro blackjax nutpie pymc --repeats 2",
    ),
    "everyday": ("everyday",),
    "ssp": ("ssp",),
    "strads": ("strads",),
    "rotation": (
        "rotation --dataset docword.rfc_early.txt.gz --param max_iter=24",
        "rotation --dataset docword.rfc_early.txt.gz --param n_components=1000 max_iter=14 kill=False",
    ),
    "placement": ("placement",),
    "plan": ("plan",),
    "pipeline": ("pipeline",),
    "allreduce": ("allreduce",),
    "networks": ("networks",),
    "ceilings": ("ceilings",),
}


def family_of(recipe):
    """Return the family that a recipe runs."""
    return recipe.split()[0]


def full(family):
    """Return the recipes of a family by the folder of their records."""
    return {name: recipes for name, recipes in FULL.items() if family_of(recipes[0]) == family}
