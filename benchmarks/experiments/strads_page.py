"""Write the measured part of docs/write-your-own-program.md from records, so that no figure is typed by hand.

    python -m stradask.benchmarks.experiments.strads_page

The tables and the picture come from `benchmarks/results/strads/records.jsonl`.
"""

from ..pages import strads_summary
from .readme import ROOT, between

PAGE, PICTURE = ROOT / "docs" / "write-your-own-program.md", ROOT / "docs" / "strads.png"


def _tables(records, place):
    """Return the tables of a place; updates and rounds are the same everywhere."""
    figures = [("updates", 1e-2), *((figure, 1e-4) for figure in strads_summary.FIGURES)]
    parts = []
    for figure, target in figures if place == "local" else figures[-1:]:
        header, body = strads_summary.rows(records, place, figure, target)
        kind = "CPU seconds" if figure == "seconds" and place == "local" else figure.capitalize()
        parts += [f"**{kind} to an excess of {target:.0e}, {place}**", ""]
        parts += ["| " + " | ".join(cells) + " |" for cells in (header, ["---"] * len(header), *body)]
        parts.append("")
    return parts


def measured(records):
    """Return picture, tables and setting as Markdown."""
    first = records[0]
    facts = {record["problem"]: record["data"] for record in records}
    parts = [f"![Excess against updates for four schedules]({PICTURE.name})", ""]
    for place in dict.fromkeys(record["place"] for record in records):
        parts += _tables(records, place)
    limits = " and ".join(f"{data['limit']:.0f} ({name})" for name, data in facts.items())
    seconds = " and ".join(f"{data['working_set_seconds']:.2g}" for data in facts.values())
    parts += [
        f"{first['data']['n']:,} rows, {first['data']['p']:,} columns, a tenth of the largest penalty; "
        f"p / lambda_max is {limits}; {first['machine']['processor']}. In brackets: excess and updates "
        "where a run came to its limit of either. Excess: the objective over its minimum, relative to the "
        f"objective at zero. `sd.Lasso` by its working set takes {seconds} CPU seconds to a gap of 1e-4.",
        "",
    ]
    return "\n".join(parts)


def main():
    """Rewrite the page and its picture."""
    from ..pages.strads_report import panels
    from ..run import read_records

    records = read_records(ROOT / "benchmarks" / "results" / "strads" / "records.jsonl")
    place = records[0]["place"]
    local = [record for record in records if record["place"] == place]
    panels(local, "updates", place)[0].savefig(PICTURE, dpi=90)
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(between(text, "strads", measured(records)), encoding="utf-8")


if __name__ == "__main__":
    main()
