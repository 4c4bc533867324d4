"""What passes over rows and Hessians cost, as a part of each other, for rules that choose between them."""

CALL = 1e5  # nanoseconds around a pass, however short


def row_costs(rows):
    """Nanoseconds that a row takes in a pass and in a Hessian, about: only their ratio matters."""
    n, d = rows.shape
    product = 5 + 0.3 * d + 0.04 * d**2
    per_row = rows.n_entries / n
    if per_row == d:
        return 3 + 0.4 * d, product
    return 5 + 1.2 * per_row, min(product, 5 + 0.7 * per_row**2)
