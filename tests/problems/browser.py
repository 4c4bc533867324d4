"""Pages in headless Chromium, at the width of a phone too: a frame is as narrow as asked, a window is not."""

import html
import re
import shutil
import subprocess

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
]

# By how much the page is wider, what ends beyond it without a scroll bar, and text that pictures cut off.
_MEASURE = """
const root = document.documentElement, scrolls = (e) => e.closest('svg, .scroll, pre, figure, iframe');
const out = [...document.querySelectorAll('body *')].filter((e) =>
  !scrolls(e) && e.getBoundingClientRect().right > innerWidth + 1);
const cut = [...document.querySelectorAll('svg text')].filter((e) => {
  const text = e.getBoundingClientRect(), box = e.ownerSVGElement.getBoundingClientRect();
  return text.width && (text.left < box.left - 1 || text.right > box.right + 1
    || text.top < box.top - 1 || text.bottom > box.bottom + 1); });
const name = (e) => e.tagName + ' ' + (e.textContent || '').trim().slice(0, 40);
Object.assign(parent.document.body.dataset, {width: innerWidth, wide: root.scrollWidth - root.clientWidth,
  out: out.map(name).join('; '), cut: cut.map(name).join('; ')});
"""


def in_a_browser(test):
    """Mark a test as slow and in need of a browser."""
    return pytest.mark.slow(pytest.mark.skipif(BROWSER is None, reason="no browser: install chromium")(test))


def shown(folder, page, script="", size="1300,900", fragment="", options=()):
    """Return the page's elements as text, after a script."""
    path = folder / "seen.html"
    path.write_text(page.replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8")
    options = [*options, f"--user-data-dir={folder}/browser", f"--window-size={size}", "--dump-dom"]
    command = [BROWSER, "--headless", *QUIET, *options, f"file://{path}{fragment}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def overflow(folder, page, width, *, dark=False):
    """Return the width that the page had, by how many pixels it is wider, and what stands out or is cut."""
    framed = page.replace(
        "</body>", f"<script>addEventListener('load', () => {{{_MEASURE}}})</script></body>"
    )
    frame = (
        f'<iframe style="border: 0; width: {width}px; height: 900px" srcdoc="{html.escape(framed)}"></iframe>'
    )
    options = ["--blink-settings=preferredColorScheme=0"] if dark else []
    seen = shown(folder, f"<body>{frame}</body>", options=[*options, "--virtual-time-budget=5000"])
    body = re.search(r"<body[^>]*>", seen)[0]
    found = {
        key: html.unescape(re.search(f'data-{key}="(.*?)"', body)[1])
        for key in ("width", "wide", "out", "cut")
    }
    return found | {key: int(found[key]) for key in ("width", "wide")}
