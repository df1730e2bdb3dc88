"""An audit report as Markdown and as one HTML file: it loads nothing from elsewhere, and the same report gives the same
bytes.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from streams.log.terminal_text import visible

Table = tuple[Sequence[str], Sequence[Sequence[str]]]

WIDTH, ROW, LEFT, RIGHT = 680, 24, 180, 230
COLOURS = {
    "train": "#009e73", "quarantine": "#e69f00", "audit_only": "#999999", "reject": "#d55e00", "pass": "#0072b2", "fail": "#d55e00",
    "unknown": "#999999", "not_required": "#56b4e9",
}  # fmt: skip
"""The palette of Okabe and Ito: distinguishable by people who do not see red and green, and in grey print."""
PLAIN = "#0072b2"
ENDS = {"0": "none", "100 %": "all"}
"""The classes at either end of the shares, as the axis names them."""
SHORT = 18
"""Characters of a cell that stays on one line."""
_STYLE = (
    "body{font:15px/1.5 Georgia,serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1d1f22;background:#fff}"
    "h1,h2{font-family:system-ui,sans-serif;line-height:1.2}table{border-collapse:collapse;margin:1rem 0;width:100%}"
    "th,td{text-align:left;padding:.25rem .6rem;border-bottom:1px solid #ddd;vertical-align:top;overflow-wrap:anywhere}"
    "th{border-bottom:2px solid #444}th,td.short{white-space:nowrap}"
    "svg{max-width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:#1d1f22}"
    ".covered{color:#00694d}.gap{color:#a84300}.partial{color:#8a5d00}figure{margin:1.5rem 0}figcaption{font-size:.9em;color:#444}"
    "@media print{body{margin:0;max-width:none}figure,tr{break-inside:avoid}}"
)

_HEAD = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">"
    f'<link rel="icon" href="data:,"><title>Audit report</title><style>{_STYLE}</style></head><body>'
)


def summary(report: dict[str, Any]) -> list[str]:
    """The sentences at the top."""
    rollouts, branches, evidence = report["rollouts"], report["branches"], report["evidence"]
    lines = [
        f"{rollouts['n']:,} rollouts, {rollouts['closed']:,} closed, {rollouts['with_gaps']:,} with missing events."
        if rollouts["n"]
        else "Evidence alone, without a log: nothing is known of outcomes, verifiers and tools."
    ]
    if branches["pass_rate"] is not None:
        low, high = branches["wilson"]
        lines.append(
            f"{branches['pass_rate']:.1%} of the branches with a known outcome pass (95 %: {low:.1%} to {high:.1%})."
        )
    found = sum(finding["severity"] != "info" for each in report["verifiers"] for finding in each["findings"])
    if rollouts["n"]:
        about_tools = sum(len(each["findings"]) for each in report["tools"])
        lines.append(f"{found:,} findings about verifiers, {about_tools:,} about tools.")
    lines.append(f"{evidence['records']:,} evidence records, {evidence['not_ok']:,} of them not ok.")
    states = [each["state"] for each in report["matrix"]]
    lines.append(
        f"Of {len(states)} controls {states.count('covered')} are covered, {states.count('partial')} in part, {states.count('gap')} not."
    )
    return lines


def sections(report: dict[str, Any]) -> list[tuple[str, Table]]:
    """The tables of the report, with their titles."""
    verifiers = [
        (each["id"], *(_text(each[key]) for key in ("n", "pass", "fail", "unknown", "pass_rate", "strength")))
        for each in report["verifiers"]
    ]
    findings = [
        (finding["severity"], each["id"], finding["id"], f"{finding['count']:,}", ", ".join(finding["branches"][:5]))
        for each in report["verifiers"]
        for finding in each["findings"]
    ]
    findings += [
        (finding["severity"], each["tool"], finding["id"], f"{finding['count']:,}", ", ".join(finding["where"][:5]))
        for each in report["tools"]
        for finding in each["findings"]
    ]
    pairs = [
        (each["a"], each["b"], _text(each["n"]), _text(each["agree"]), _text(each["kappa"])) for each in report["pairs"]
    ]
    matrix = [
        (
            each["control"],
            each["name"],
            f"{each['evidence']} [{each['applies_to']}]",
            f"{each['have']:,} of {each['applicable']:,}",
            each["state"],
        )
        for each in report["matrix"]
    ]
    claims = [(each["id"], _text(each["pass"]), _text(each["fail"])) for each in report["evidence"]["verifier_results"]]
    left = [(name, f"{count:,}") for name, count in report["left_out"].items()]
    return [
        ("Verifiers", (("verifier", "n", "pass", "fail", "unknown", "pass rate", "strength"), verifiers)),
        ("Findings", (("severity", "about", "finding", "count", "where"), findings)),
        ("Agreement of verifiers", (("a", "b", "n", "agree", "kappa"), pairs)),
        ("Verifier results in evidence", (("verifier", "pass", "fail"), claims)),
        ("Left out of training", (("reason", "rows"), left)),
        ("Standards", (("control", "name", "evidence", "have", "state"), matrix)),
    ]  # fmt: skip


def markdown(report: dict[str, Any]) -> str:
    """The report as Markdown."""
    lines = ["# Audit report", "", f"As of {dated(report)}.", "", *(f"- {line}" for line in summary(report)), ""]
    for title, (head, rows) in sections(report):
        lines += [f"## {title}", ""]
        if rows:
            lines += [_line(head), _line(["---"] * len(head)), *(_line(row) for row in rows), ""]
        else:
            lines += ["Nothing.", ""]
    return "\n".join(lines)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(map(_plain, cells))} |"


def _plain(cell: str) -> str:
    """A cell without control characters, tags, links and ends of cells: names in a log come from outside."""
    return escape(visible(cell), quote=False).replace("|", "\\|").replace("](", "]\\(")


def html(report: dict[str, Any]) -> str:
    """The report as one file, with plots."""
    parts = [
        _HEAD,
        f"<h1>Audit report</h1><p>As of {escape(dated(report))}.</p><ul>",
        *(f"<li>{escape(line)}</li>" for line in summary(report)),
        "</ul>",
        *_plots(report),
    ]
    for title, (head, rows) in sections(report):
        parts.append(f"<h2>{escape(title)}</h2>")
        parts.append(_html_table(head, rows) if rows else "<p>Nothing.</p>")
    return "\n".join([*parts, "</body></html>", ""])


def _html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "".join(f"<tr>{''.join(_cell(cell) for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _cell(text: str) -> str:
    shown = visible(text)
    kinds = [shown] if shown in ("covered", "gap", "partial") else []
    kinds += ["short"] if len(shown) <= SHORT else []
    return f'<td class="{" ".join(kinds)}">{escape(shown)}</td>' if kinds else f"<td>{escape(shown)}</td>"


# -- plots ---------------------------------------------------------------------------------------------------------------


def _plots(report: dict[str, Any]) -> list[str]:
    rates = [
        (each["id"], each["pass_rate"], each["wilson"], each["n"])
        for each in report["verifiers"]
        if each["pass_rate"] is not None
    ]
    made = []
    if rates:
        made.append(
            (
                _forest(rates),
                "Pass rate of each verifier over branches with a known verdict, with its 95 % Wilson interval.",
            )
        )
    for counts, caption in (
        (report["branches"]["objective"], "Objective status of the branches of closed rollouts (n = {n:,})."),
        (report["admission"], "Admission of rows (n = {n:,}). Only train reaches a training topic."),
    ):
        if counts:
            made.append((_stack(counts), caption.format(n=sum(counts.values()))))
    shares = report["branches"]["rollouts_by_pass_share"]
    if shares:
        caption = "Rollouts by the share of their branches that pass (n = {n:,}). Rollouts at either end hold no contrast to learn from."
        made.append((_bars(shares), caption.format(n=sum(shares.values()))))
    return [_figure(number, *each) for number, each in enumerate(made, start=1)]


def _figure(number: int, svg: str, caption: str) -> str:
    return f"<figure>{svg}<figcaption><b>Figure {number}.</b> {escape(caption)}</figcaption></figure>"


def _svg(height: int, caption: str, body: Iterable[str]) -> str:
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(caption)}" {size}>{"".join(body)}</svg>'


def _label(x: float, y: float, text: str, anchor: str = "start") -> str:
    """A text at a position; with its font, so that the plot is complete outside of the page."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-family="sans-serif" font-size="12">{escape(text)}</text>'


def _line_of(x1: float, x2: float, y1: float, y2: float, stroke: str, width: float = 1) -> str:
    return f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}" stroke="{stroke}" stroke-width="{width:g}"/>'


def _forest(rates: list[tuple[str, float, list[float], int]]) -> str:
    """A row for each verifier: the rate as a point, its interval as a line with ends, and the numbers."""
    room, bottom = WIDTH - LEFT - RIGHT, ROW * (len(rates) + 1)
    body = [_line_of(LEFT, LEFT + room, bottom, bottom, "#444")]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = LEFT + room * share
        body += [_line_of(x, x, 8, bottom, "#e2e2e2"), _line_of(x, x, bottom, bottom + 5, "#444")]
        body.append(_label(x, bottom + 20, f"{share:.0%}", "middle"))
    body.append(_label(LEFT + room / 2, bottom + 40, "pass rate", "middle"))
    for at, (name, rate, (low, high), n) in enumerate(rates):
        y = ROW * at + 20
        left, right, middle = (LEFT + room * value for value in (low, high, rate))
        body.append(_label(LEFT - 14, y + 4, visible(name)[:26], "end"))
        body.append(_line_of(left, right, y, y, "#1d1f22", 1.5))
        body += [_line_of(x, x, y - 4, y + 4, "#1d1f22", 1.5) for x in (left, right)]
        body.append(f'<circle cx="{middle:.1f}" cy="{y}" r="4" fill="{PLAIN}"/>')
        body.append(_label(LEFT + room + 16, y + 4, f"{rate:.1%} [{low:.1%}, {high:.1%}], n = {n:,}"))
    return _svg(bottom + 48, "pass rates", body)


def _stack(counts: dict[str, int]) -> str:
    """One bar of all, and a legend with numbers."""
    total, x, body = sum(counts.values()), 0.0, list[str]()
    for at, (name, count) in enumerate(counts.items()):
        wide = WIDTH * count / total
        fill = f'fill="{COLOURS.get(name, PLAIN)}" stroke="#fff"'
        body.append(f'<rect x="{x:.1f}" y="8" width="{wide:.1f}" height="24" {fill}/>')
        body.append(f'<rect x="{at % 4 * 170}" y="{46 + at // 4 * ROW}" width="12" height="12" {fill}/>')
        body.append(_label(at % 4 * 170 + 18, 57 + at // 4 * ROW, f"{name} {count:,} ({count / total:.0%})"))
        x += wide
    return _svg(46 + (len(counts) + 3) // 4 * ROW, "shares", body)


def _bars(counts: dict[str, int]) -> str:
    """A bar for each, from a common line."""
    most, wide = max(counts.values()), WIDTH / len(counts)
    body = [_line_of(0, WIDTH, 140, 140, "#444")]
    for at, (name, count) in enumerate(counts.items()):
        high = 112 * count / most if most else 0
        if count:
            body.append(
                f'<rect x="{at * wide + 12:.1f}" y="{140 - high:.1f}" width="{wide - 24:.1f}" height="{high:.1f}" fill="{PLAIN}"/>'
            )
        body.append(_label((at + 0.5) * wide, 134 - high, f"{count:,}", "middle"))
        body.append(_label((at + 0.5) * wide, 158, ENDS.get(name, name), "middle"))
    body.append(_label(WIDTH / 2, 180, "share of the branches of a rollout that pass", "middle"))
    return _svg(188, "rollouts by share of passes", body)


def dated(report: dict[str, Any]) -> str:
    """The time of the last closure."""
    at = report["as_of_ms"]
    if at is None:
        return "no closure"
    try:
        return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{at} ms"


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.3g}"
