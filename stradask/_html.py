"""Tables for notebooks."""

import html
from collections.abc import Iterable, Sequence


def table(
    header: Sequence[str], rows: Iterable[Sequence[object]], note: str = "", text: Sequence[int] = ()
) -> str:
    """Return a table; columns of `text` are aligned to the left, all others to the right."""

    def row(cells, tag):
        parts = []
        for k, cell in enumerate(cells):
            side = "left" if k in text else "right"
            parts.append(f'<{tag} style="text-align:{side}">{html.escape(str(cell))}</{tag}>')
        return f"<tr>{''.join(parts)}</tr>"

    body = "".join(row(cells, "td") for cells in rows)
    below = f"<p>{html.escape(note)}</p>" if note else ""
    return f"<table><thead>{row(header, 'th')}</thead><tbody>{body}</tbody></table>{below}"
