"""The purposes of random streams: with the seed they name a stream, and no two of one model share one."""

from enum import IntEnum, unique


@unique
class Purpose(IntEnum):
    """What a stream of random numbers is for.

    The bits of a model for a seed, and of one that goes on from a checkpoint, depend on these numbers: they
    stay, and new ones are added. Compiled code gets the `value`.
    """

    # Topics: sweeps, first topics and inference
    SWEEP = 1
    FOLD_IN = 2
    CHOICES = 3  # of topics with which a document begins
    ASSIGN = 4  # one of them to each token
    LEFT_TO_RIGHT = 5
    ANNEALED_SAMPLING = 6
    LIGHT_SWEEP = 7
    WORD_PASS = 8
    DOCUMENT_PASS = 9
    SEED_WORDS = 10
    SABER_SWEEP = 11
    COVARIATES = 12
    TOKENS = 13
    FIRST_CLUSTERS = 14
    CLUSTER_SWEEP = 15
    TOPIC_SHARES = 16
    FIRST_SLICES = 17
    RESPONSES = 18
    # PyTorch's own numbers while data are read
    TORCH_SURVEY = 101
    TORCH_COLLECT = 102
    TORCH_READ = 103
    # Optimizers and networks
    BATCHES = 2**63 + 16
    FIRST_STEP = 2**63 + 17
    WEIGHTS = 2**63 + 18
    ONE_PASS = 2**63 + 19
    TRIAL = 2**63 + 20
    EPOCH = 2**63 + 21
    LAYERS = 2**63 + 22
