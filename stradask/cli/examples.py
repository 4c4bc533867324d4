"""Texts at the end of ``stradask --help`` and of its commands' help: examples, and forms of DATA."""

from . import commands

EPILOG = """
start here:
  stradask demo                               every family in a minute or two; writes a report with pictures
  stradask fit lda reviews.csv:text --save m.npz    topics of the texts in a column, a folder or lines
  stradask topics m.npz                       read them again
  stradask transform m.npz new.csv:text       shares of topics in new texts
  stradask sweep lda docstrings --n-components 10 20 50    how many topics?
  stradask fit lasso-cv data.svm --save s.npz a sparse linear model, its penalty chosen by cross-validation
  stradask predict s.npz new.svm              what it says of new rows
  stradask score s.npz new.svm                how right it is
  stradask COMMAND --help                     options and examples of a command
"""

EXAMPLES = {
    "demo": """
  stradask demo
  stradask demo --quick --out /tmp/demo.html
  stradask demo --n-components 50 --json > figures.json
""",
    "fit": f"""
  stradask fit lda docstrings
  stradask fit lda reviews.csv:text --n-components 20 --save topics.npz
  stradask fit lda folder-of-texts/ --n-components 20
  stradask fit slda reviews.csv:text --target stars --n-components 20 --save slda.npz
  stradask fit keyatm reviews.csv:text --seed-words seeds.txt --n-components 20
  stradask fit lda docword.kos.txt.gz --vocab vocab.kos.txt --n-components 50 --max-iter 500
  stradask fit lda corpus/docword.*.txt.gz --cluster tcp://host:8786 --n-components 1000 --save topics
  stradask fit lda counts.npz --test-size 0.1 --n-jobs -1 --save model.npz --json
  stradask fit lasso data.svm.gz --alpha 0.1 --test-size 0.2 --save model.npz
  stradask fit lasso-cv prices.csv --target price --save prices.npz
  stradask fit logistic customers.csv:churned --impute --drop id name --save churn.npz
  stradask fit sparse-logistic-cv data.svm --cv 10 --rule 1se
  stradask fit cox trial.csv:time,event --impute --alpha 0.05
  stradask fit multi-task-lasso-cv rows.csv:first,second
  stradask fit logistic data.svm --cluster tcp://host:8786
  stradask fit mlp-classifier data.svm --hidden-layer-sizes 100,50 --save network.npz
  stradask fit mf ratings.csv --n-components 64 --test-size 0.1 --titles movies.csv --save m.npz
  stradask fit ease plays.csv --reg 100 --test-size 0.2 --save m.npz
  stradask fit mf ratings.csv --user-features users.csv --item-features genres.csv --save m.npz

MODEL is one of
{commands.model_lines()}

DATA of lda is a file with word counts, recognised by what it holds: UCI bag of words (docword), svmlight (its
labels are not used), both plain or compressed (gz, xz, bz2), or a sparse matrix of scipy.sparse.save_npz;
or the word docstrings: the documentation of the installed packages (./docstrings is a file).
DATA of the other models is rows of numbers with a target each: an svmlight file, or a table whose name ends
in csv, tsv, jsonl or parquet, plain or compressed. Of a table say which column is the target, by its name in
the header or by its number from 0, as prices.csv:price or with --target price (of several targets
prices.csv:first,second, of survival data trial.csv:TIME,EVENT); the others hold
numbers, or text for categories.
DATA of mf, ease, slim, item-knn and popularity is ratings: lines of user, item, rating in CSV or as
MovieLens has them, JSON lines or Parquet with these columns (ids are whole numbers or text, and kept with
the model), or a sparse matrix of scipy.sparse.save_npz.

Ctrl-C stops after the running sweep or round; the model so far is printed and saved, and the exit status
is 130. (A search by cross-validation just stops.)
""",
    "sweep": f"""
  stradask sweep lda docstrings --n-components 10 20 50 100
  stradask sweep lda docword.kos.txt.gz --n-components 20 50 100 200 --repeats 5 --out sweep-of-kos
  stradask sweep lda counts.npz --n-components 50 100 --test new.npz --max-iter 500 --optimize-priors True

MODEL is {commands.swept_models()}; DATA is as for fit.

Every K is fitted --repeats times, from seeds that follow --random-state, and judged by the same held-out
documents: half of the tokens of each are observed, the other half is predicted. The table has the mean
perplexity and its standard deviation over the seeds; the coherence (mean NPMI) of the topics in the documents
learnt from; their diversity, the part of distinct words among the 25 best of all topics; how many topics a
document has; and the seconds of a fit. Marked are the best mean perplexity and the smallest K whose mean is
within one standard error (se) of it.

With --out, every fit is recorded when it is done, and not done again when the command is repeated with the
same data and parameters, also with more numbers or repeats. Ctrl-C keeps what is done; the exit status is
then 130.
""",
    "transform": """
  stradask transform model.npz docword.new.txt.gz --out shares.npz
  stradask transform model.npz docstrings | head

Columns of the result are topics, rows are documents; rows sum to 1. Where the words of both the model and
DATA are known, columns are matched by their words.
""",
    "predict": """
  stradask predict model.npz new.svm.gz --out predictions.csv
  stradask predict model.npz new.svm | head
  stradask predict prices.npz new.csv
  stradask predict prices.npz sold.csv:price
  stradask predict ratings-model.npz new-ratings.csv

DATA is an svmlight file or a table, as for fit. A table may have the model's columns alone; where it has
targets, say which column they are, and how well they are predicted goes to stderr. Classifiers give the
label and the probability of each class.
""",
    "tokens": """
  stradask tokens topics.npz reviews.csv:text --out tokens.csv
  stradask tokens topics.npz docword.new.txt.gz --json

Of texts there is a row for each word, in order; words that the model does not know have the topic -1. Of
counts there is a row for each document and distinct word.
""",
    "coherence": """
  stradask coherence topics.npz reviews.csv:text
  stradask coherence topics.npz reviews.csv:text --measure c_npmi --window 20
  stradask coherence topics.npz docword.txt.gz --measure umass
""",
    "explore": """
  stradask explore topics.npz reviews.csv:text --out topics.html
  stradask explore topics.npz reviews.csv:text --groups year
  stradask explore topics.npz
""",
    "recommend": """
  stradask recommend model.npz --user 42
  stradask recommend model.npz --user ann bob --n 3 --json
  stradask recommend model.npz --like 260
  stradask recommend model.npz --map items.png
""",
    "score": """
  stradask score churn.npz new-customers.csv:churned
  stradask score topics.npz new-reviews.csv:text
  stradask score ratings-model.npz new-ratings.csv --json
""",
    "explain": """
  stradask explain mf.npz ratings.csv --user ann --item 260
  stradask explain ease.npz --user ann --item 260 --n 10
""",
    "completion": """
  eval "$(stradask completion bash)"                   # for this shell; needs pip install shtab
  stradask completion zsh > ~/.zfunc/_stradask
""",
    "topics": """
  stradask topics model.npz
  stradask topics model.npz --n-words 20 --vocab vocab.kos.txt
  stradask topics model.npz --rank-by relevance
  stradask topics model.npz --json
""",
    "plan": """
  stradask plan lda --tokens 2e11 --vocabulary 1e6 --topics 1e6 --machines 8 --memory 256GB
  stradask plan lda --files 'corpus/docword.*.txt.gz' --topics 1000 --machines 4 --memory 16GB
  stradask plan lda --tokens 1e9 --vocabulary 1e5 --topics 1e4 --memory 8GB --measure --json
""",
    "data": """
  stradask data list
  stradask data get kos
  stradask data info docword.kos.txt.gz
  stradask data shard docword.pubmed.txt.gz --shards 64 --out corpus
""",
    "shard": "\n  stradask data shard docword.pubmed.txt.gz --shards 64 --out corpus\n",
    "list": "\n  stradask data list\n  stradask data list --json\n",
    "get": "\n  stradask data get kos\n  STRADASK_DATA=/big/disk stradask data get pubmed\n",
    "info": "\n  stradask info\n  stradask info --json\n  stradask info --cluster tcp://host:8786\n"
    "  stradask info --measure\n",
    "info of a file": "\n  stradask data info docword.kos.txt.gz\n  stradask data info docstrings --json\n"
    "  stradask data info docword.nytimes.txt.gz --n-components 10000 --memory 8GB\n",
    "bench": """
  stradask bench --quick                  # every family, three minutes
  stradask bench lda
  stradask bench strads --quick
  stradask bench lda --against tomotopy sklearn gensim --max-seconds 20 --repeats 5
  stradask bench lasso --full --data folder --out benchmarks/results
""",
}
