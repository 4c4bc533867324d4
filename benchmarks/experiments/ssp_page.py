"""Write the measured part of docs/ssp.md from records, so that no figure is typed by hand.

    python -m stradask.benchmarks.experiments.ssp_page

Table and picture come from the newest run in `benchmarks/results/ssp/records.jsonl`.
"""

from .. import ssp
from .readme import ROOT, between, markdown

PAGE, PICTURE = ROOT / "docs" / "ssp.md", ROOT / "docs" / "ssp.png"
RECORDS = ROOT / "benchmarks" / "results" / "ssp" / "records.jsonl"


def measured(records):
    """Return picture, table and setting as Markdown."""
    data = records[-1]["data"]
    header, body = ssp.rows(records)
    return (
        f"![Excess against time for five bounds of staleness]({PICTURE.name})\n\n"
        f"Time to an excess of {ssp.TARGET:g}, in clocks that are not slow, and the share spent waiting:\n\n"
        f"{markdown(header, body)}\n"
        f"{data['n']:,} rows, {data['p']} columns, minibatches of {data['batch']}, {data['n_replicas']} "
        f"replicas, {data['clocks']} clocks; a slow clock takes {data['factor']:g} times as long.\n"
    )


def newest(records):
    """Return the records of the last run."""
    return [record for record in records if record["run"] == records[-1]["run"]]


def main():
    """Rewrite the page and its picture."""
    from ..run import read_records

    records = newest(read_records(RECORDS))
    ssp.picture(records).savefig(PICTURE, dpi=90)
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(between(text, "measured", measured(records)), encoding="utf-8")


if __name__ == "__main__":
    main()
