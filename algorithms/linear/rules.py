"""Up to which sizes of X each special method of the linear models is taken.

``python -m stradask.benchmarks.experiments.linear.linear_rules`` measures, on both sides of the limits of
`Sizes`, the CPU time of fits by the method over that of fits without it. With ``--write`` it renews the
record in ``benchmarks/results/linear-rules``. Limits are near where the method stops to be the faster one.
Among the methods of smooth models, `glm.choose` predicts times from passes over the rows.
"""

from typing import NamedTuple


class Sizes(NamedTuple):
    """Limits of a method: columns (or parameters), and the products that its moments or Hessian take.

    Attributes
    ----------
    columns : float
    products : float
        Rows times the square of columns, of dense X.
    stored : float
        Products of stored entries, the same number in each row, of sparse X.
    """

    columns: float
    products: float
    stored: float = 0.0

    def hold(self, n_rows, n_columns, n_stored=None):
        """Whether X is within the limits; `n_stored` are the entries of a sparse one."""
        if n_columns > self.columns:
            return False
        if n_stored is not None:
            return n_stored * (n_stored / n_rows) <= self.stored
        return float(n_rows) * n_columns * n_columns <= self.products


SMALL_SMOOTH = Sizes(100, 5e6)  # Newton's method with compiled steps (`glm.small`); parameters
SMALL_RIDGE = Sizes(2000, 1e10)  # normal equations (`glm.ridge_system`); columns and targets in the products
SMALL_SPARSE_RIDGE = Sizes(500, 0.0, 1e6)  # the same of sparse rows
MOMENTS = Sizes(200, 1e9)  # second moments for one penalty (`sparse.moments`)...
SPARSE_MOMENTS = Sizes(500, 0.0, 1.2e6)  # ...the same of sparse columns...
MOMENTS_OF_A_PATH = Sizes(500, 1e10, 2e7)  # ...and for a path
MOMENTS_OF_BLOCKS = Sizes(500, 3e8)  # ...and of blocks, or several targets (`structured.solving.moments`)
PATH = 10  # penalties that make a path
# Products of moments from which on it pays to limit BLAS to one thread: others would only wait.
FEW_PRODUCTS = 1e6
DUAL_ROWS = 2000  # of the dual of ridge (`glm.ridge_system`): beyond, matrix and factor take too much memory


class Costs(NamedTuple):
    """Nanoseconds of the parts of a ridge regression, about: only ratios matter.

    Attributes
    ----------
    call : float
        Around a step of conjugate gradients.
    entry, far_entry, sparse_entry : float
        An entry of X in a product with a vector: where X fits into the cache, where it does not, of sparse X.
    product, sparse_product : float
        One product of two entries in a product of matrices, or in a factor.
    copied : float
        An entry of X less its column's mean, for such products.
    """

    call: float
    entry: float
    far_entry: float
    sparse_entry: float
    product: float
    sparse_product: float
    copied: float


CACHED = 2**20  # entries of X that fit into the cache
RIDGE_COSTS = Costs(
    call=3e4, entry=0.2, far_entry=0.6, sparse_entry=1.3, product=0.04, sparse_product=3.0, copied=1.0
)
