"""What runs of ``stradask bench strads`` come to, in tables."""

from .summary import aligned

POLICIES = ("cyclic", "random", "priority", "priority + dependency")
TARGETS = (1e-2, 1e-3, 1e-4)
LEAST = TARGETS[-1]
RHO = 0.3  # columns that correlate by as much never stand in one set
FIGURES = ("updates", "rounds", "seconds")


def cell(record, figure, target):
    """Say when a run reached a target, in one of `FIGURES`; ``"diverges"``, or what it reached."""
    reached = record["reached"][f"{target:g}"]
    if reached is None:
        if record["reason"] == "diverged":
            return "diverges"
        return f"({record['curve']['excess'][-1]:.0e} at {record['updates']:,})"
    if figure == "rounds":  # at the least target a run ends, so that all its rounds count
        return f"{record['rounds']:,}"
    return f"{reached['updates']:,}" if figure == "updates" else f"{reached['seconds']:.3g}"


def rows(records, place, figure, target=LEAST):
    """Return header and rows: one row a problem and size, one column a schedule."""
    runs = {(r["problem"], r["size"], r["policy"]): r for r in records if r["place"] == place}
    keys = list(dict.fromkeys((problem, size) for problem, size, _ in runs))
    body = []
    for problem, size in keys:
        cells = (runs.get((problem, size, policy)) for policy in POLICIES)
        figures = ["" if run is None else cell(run, figure, target) for run in cells]
        body.append([f"{problem}, {size} in flight", *figures])
    return ["", *POLICIES], body


def table(records):
    """Return the tables as text."""
    lines = []
    for place in dict.fromkeys(record["place"] for record in records):
        for figure in FIGURES:
            header, body = rows(records, place, figure)
            lines.append(f"{figure.capitalize()} to an excess of 1e-4, {place}")
            lines += aligned(header, body)
    lines.append("In brackets: excess and updates at the end of a run that came to a limit of either.")
    return "\n".join(lines)
