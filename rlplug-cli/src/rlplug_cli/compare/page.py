"""Writes a comparison as one self-contained HTML page: no script, no font, no other file."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from rlplug_cli import __version__
from rlplug_cli.compare import figures
from rlplug_cli.compare.report import Report
from rlplug_cli.compare.tables import sections

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c1e21; background: #fff; margin: 2rem auto; max-width: 76rem;
  padding: 0 1rem }
h1 { font-size: 1.4rem } h2 { font-size: 1.05rem; margin-top: 2rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th { text-align: left; font-weight: 600; border-bottom: 2px solid #d5d8dc; font-size: .75rem; color: #5b6168 }
td, th { padding: .3rem .9rem .3rem 0; vertical-align: top; white-space: nowrap }
td { border-bottom: 1px solid #eceef0 } td:nth-child(2) { font-weight: 600 }
.wide { overflow-x: auto } svg { max-width: 100%; height: auto }
body.ended::before { content: "The server has ended; this is its last state."; color: #b00020 }
.remarks, footer { color: #5b6168 } code { background: #f3f4f5; padding: 0 .25em }
"""
HEADINGS = {"ENVIRONMENT": "Final return", "MORE LIKELY ABOVE": "Probability of improvement"}


def page(comparison: Report, title: str) -> str:
    """Return the page: curves, tables, the method, and the list of runs."""
    return shell(title, content(comparison, title))


def content(comparison: Report, title: str) -> str:
    """Return the content of the page as HTML."""
    share = f"{100 * comparison.settings.confidence:g} %"
    blocks = [
        f"<h1>{escape(title)}</h1>",
        _remarks(comparison.remarks),
        f'<div class="wide">{figures.svg(comparison.lines, comparison.settings)}</div>',
        f"<p>{_method(comparison, share)}</p>",
        *(
            f"<h2>{HEADINGS.get(header[0], '') if 'REACHED' not in header else 'Cost of a return'}</h2>"
            f"{_table(header, rows)}"
            for header, rows in sections(comparison, share)
        ),
        f"<h2>Runs</h2>{_runs(comparison)}",
        f"<footer>rlplug {__version__}</footer>",
    ]
    return "\n".join(blocks)


def shell(title: str, inner: str, head: str = "") -> str:
    """Return a page with a title around some HTML; `head` is HTML at the end of its head."""
    start = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>{head}'
    return f"<!doctype html>\n<html lang=en><head>{start}</head>\n<body>\n<main>{inner}</main>\n</body></html>\n"


def _method(comparison: Report, share: str) -> str:
    settings = comparison.settings
    center = {"iqm": "interquartile mean", "mean": "mean"}[settings.center]
    smooth = (
        f" Each value is averaged over {settings.smooth} points." if settings.smooth > 1 else ""
    )
    return (
        f"Lines are the {center} over seeds, bands the pointwise {share} interval of a stratified bootstrap "
        f"(Agarwal et al., 2021, arXiv:2108.13264).{smooth} Final returns are of greedy episodes: "
        "<em>last</em> are the weights at the end, <em>best</em> the checkpoint that evaluated best in training."
    )


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    lines = []
    for row in rows:
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in row)
        lines.append(f"<tr>{cells}</tr>")
    body = "\n".join(lines)
    return f'<div class="wide"><table><tr>{head}</tr>\n{body}</table></div>'


def _runs(comparison: Report) -> str:
    rows = [
        (
            run.env,
            arm.label,
            str(run.seed),
            str(run.path),
            "finished" if run.is_finished else "not finished",
        )
        for arm in comparison.arms
        for run in arm.runs
    ]
    return _table(("ENVIRONMENT", "OF", "SEED", "RUN", "STATUS"), rows)


def _remarks(remarks: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(remark)}</li>" for remark in remarks)
    return f'<ul class="remarks">{items}</ul>' if items else ""
