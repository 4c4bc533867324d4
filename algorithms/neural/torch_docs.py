"""Parameters, attributes and notes of the estimators of torch modules, which their docstrings share."""

SHARED_DOCS = {
    "parameters": """module : torch.nn.Module or callable
        The network, whose parameters are the start and stay as they are; or a function that makes one, called
        with nothing or with (n_features, n_outputs), whose random numbers come from `random_state`. Rows of X
        of several axes have their shape in the place of `n_features`.
    %(loss)s
    optimizer : {"sgd", "nesterov", "adam"}, default="sgd"
        As in PyTorch.
    learning_rate : float, default=0.01
    momentum : float, default=0.9
        Of "sgd" and "nesterov".
    weight_decay : float, default=0.0
        This times the parameters is added to the gradient.
    batch_size : int, default=256
        Rows of a mini-batch, at most: the rows of an epoch are cut into mini-batches of equal size.
    micro_batches : int or "auto", default="auto"
        Parts into which a mini-batch is cut. "auto" is 1, 2, 4, 8 or 16, of 100 rows or more; it depends on
        `batch_size` alone, so that places change no bit.
    max_iter : int, default=10
        Epochs.
    plan : "auto", "data", "pipeline", "split" or list of (str, int), default="auto"
        ``[("0:4", 2), ("4:", 1)]`` puts the first four layers of a ``nn.Sequential`` on two places, which
        share the rows, and the rest on one. "data" puts all layers on each place: on as many as there are
        threads (`n_jobs`, or those of all workers) and can share the micro-batches evenly. "pipeline" and
        "auto" time the layers, on a worker if there are workers, and take the plan that
        `stradask.scheduler.plan_pipeline` predicts to be fastest: of several stages, or of any number. On a
        cluster "auto" may be a split, too, where it needs at most 80 % of the time of the best other plan.
        "split" gives each place some hidden units of two ``nn.Linear`` with at most activations between them,
        those with the most parameters, and all other layers to the first; ``("0:3", 2, "split")`` does so for
        a stage. Sums over parts have other last bits than one place has.
    order : {"1f1b", "gpipe", "pipedream"}, default="1f1b"
        Order of the micro-batches in a pipeline. "1f1b" and "gpipe" give the same model; "pipedream" does not
        wait for the end of a mini-batch, and computes its gradient with parameters of some steps ago.
    recompute : bool or "auto", default="auto"
        Keep only the input of each stage, and compute the rest again before the backward pass: less memory
        for a third more time. "auto" does not.
    wire : {"float32", "bfloat16", "log8"} or None, default=None
        Number format of activations and gradients between places; None leaves them as they are. "bfloat16"
        takes half the bytes of float32, "log8" (a sign and a power of ``2 ** (1/8)``) a quarter. Parameters
        and sums stay as they are, and all replicas get the same rounded sums. The result is the same on
        threads and on Dask, and depends on the plan: "auto" is "data" then, and "pipeline" may choose other
        stages the next time.
    early_stopping : bool, default=False
        Hold rows out, stop by the score on them, and keep the parameters with the best.
    validation_fraction : float, default=0.1
        Share of rows that are held out.
    n_iter_no_change : int, default=10
        `early_stopping` stops after more epochs than these without a better score.
    warm_start : bool, default=False
        Begin from the parameters of the last fit.
    engine : str or distributed.Client, default="local"
        ``"local"``: threads of this process; ``"dask"``: the current Dask client; a client; or a scheduler's
        address.
    device : str, default="cpu"
        Where places compute: "cpu", "cuda", "cuda:0", "cuda:1"..., or "auto": "cuda" if this process, or each
        worker, has a GPU that torch can use, else "cpu". Parameters, gradients and what travels are in memory
        of the host. On a GPU the last bits may differ from run to run, as torch's own sums do.
    n_jobs : int or None, default=None
        Threads; on a cluster threads of each worker, None for as many as it has.
    checkpoint : path-like or None, default=None
        Folder of states. A fit of the same data, parameters and module goes on from it. `plan` must not
        depend on timings then: "auto" is "data", and "pipeline" is refused.
    random_state : int, RandomState or None, default=None
        Order of the rows, dropout, rows that are held out, and what a function given as `module` draws.
    verbose : int, default=0
        1 shows a progress bar.""",
    "attributes": """module_ : torch.nn.Module
        A copy of `module` with the fitted parameters, in the state of evaluation: plain torch.
    weights_, buffers_ : ndarray
        All trained parameters, and all other numbers of the module, one after another.
    optimizer_state_ : ndarray of shape (n_slots, n_parameters)
        From which `partial_fit` goes on: the momentum of "sgd" and "nesterov" (no row without one), or the
        means of gradients and of their squares of "adam".
    n_updates_ : int
        Steps of the optimizer.
    plan_ : Plan
        Stages, replicas, micro-batches and order; ``plan_.table()`` is text. Not in model files.
    timeline_ : structured ndarray
        What each place did in the last epoch: place, kind, step, micro, start, end (seconds). Not in model
        files.
    loss_curve_ : list of float
        Mean loss of the rows of each epoch, as they were trained on.
    loss_ : float
        The last of them.
    validation_scores_ : list of float
    best_validation_score_ : float
        With `early_stopping`.
    history_ : dict of ndarray
        One row an epoch.
    n_iter_ : int
        Epochs.
    module_name_ : str
        Where the class or function of `module` is, for who reads the model from a file.
    row_shape_ : tuple of int
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only when `X` had feature names that are all strings.""",
    "notes": """Seeds and places: with the same `micro_batches` the parameters are *bitwise* the same on one
    place, on 2, 4... replicas, and for "1f1b" and "gpipe" pipelines of any stages, with or without
    `recompute`, on threads and on workers of one kind of processor and one version of torch; also after a
    worker was lost. Only splits have other last bits, which belong to the number of their parts;
    ``plan_.table()`` says whether "auto" took one. Each place computes on one thread of torch's. Running
    means of batch normalisation are those of the first replica, and belong to the plan; each micro-batch is
    normalised by itself.

    `save` writes the numbers, those of the optimizer among them, and no code.
    ``stradask.load(path, module=...)`` is given the module, or the
    function, again; `module_name_` says which.""",
}
