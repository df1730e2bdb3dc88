"""An audit report as Markdown and as one HTML file: nothing is loaded from elsewhere, and the same report gives the same bytes."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from streams.log.terminal_text import visible

Table = tuple[Sequence[str], Sequence[Sequence[str]]]

WIDTH, ROW, LEFT = 640, 24, 200
COLOURS = {
    "train": "#2f7d4f", "quarantine": "#d9a13b", "audit_only": "#8a8f98", "reject": "#b5483f", "pass": "#2f7d4f", "fail": "#b5483f",
    "unknown": "#8a8f98", "not_required": "#5b7db1",
}  # fmt: skip
_STYLE = (
    "body{font:15px/1.5 Georgia,serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1d1f22;background:#fff}"
    "h1,h2{font-family:system-ui,sans-serif;line-height:1.2}table{border-collapse:collapse;margin:1rem 0;width:100%}"
    "th,td{text-align:left;padding:.25rem .6rem;border-bottom:1px solid #ddd;vertical-align:top;overflow-wrap:anywhere}"
    "th{border-bottom:2px solid #444}svg{max-width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:#1d1f22}"
    ".covered{color:#2f7d4f}.gap{color:#b5483f}.partial{color:#9a6a00}figcaption{font-size:.9em;color:#555}"
)

_HEAD = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">"
    f'<link rel="icon" href="data:,"><title>Audit report</title><style>{_STYLE}</style></head><body>'
)


def summary(report: dict[str, Any]) -> list[str]:
    """The sentences that stand first."""
    rollouts, branches, evidence = report["rollouts"], report["branches"], report["evidence"]
    lines = [
        f"{rollouts['n']:,} rollouts, {rollouts['closed']:,} closed, {rollouts['with_gaps']:,} with missing events."
    ]
    if branches["pass_rate"] is not None:
        low, high = branches["wilson"]
        lines.append(
            f"{branches['pass_rate']:.1%} of the branches with a known outcome pass (95 %: {low:.1%} to {high:.1%})."
        )
    found = sum(finding["severity"] != "info" for each in report["verifiers"] for finding in each["findings"])
    lines.append(
        f"{found:,} findings about verifiers, {sum(len(each['findings']) for each in report['tools']):,} about tools."
    )
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
    return f"| {' | '.join(visible(cell).replace('|', '/') for cell in cells)} |"


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
    shown = escape(visible(text))
    return f'<td class="{shown}">{shown}</td>' if shown in ("covered", "gap", "partial") else f"<td>{shown}</td>"


# -- plots ---------------------------------------------------------------------------------------------------------------


def _plots(report: dict[str, Any]) -> list[str]:
    rates = [
        (each["id"], each["pass_rate"], each["wilson"], each["n"])
        for each in report["verifiers"]
        if each["pass_rate"] is not None
    ]
    made = []
    if rates:
        made.append(_figure(_forest(rates), "Pass rate of each verifier with its 95 % Wilson interval."))
    for counts, caption in (
        (report["branches"]["objective"], "Objective status of the branches of closed rollouts."),
        (report["admission"], "Admission of rows: only `train` reaches a training topic."),
    ):
        if counts:
            made.append(_figure(_stack(counts), caption))
    shares = report["branches"]["rollouts_by_pass_share"]
    if shares:
        made.append(
            _figure(_bars(shares), "Rollouts by the share of their branches that pass: groups of equals teach nothing.")
        )
    return made


def _figure(svg: str, caption: str) -> str:
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def _svg(height: int, caption: str, body: Iterable[str]) -> str:
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    return f'<svg role="img" aria-label="{escape(caption)}" {size}>{"".join(body)}</svg>'


def _forest(rates: list[tuple[str, float, list[float], int]]) -> str:
    room, height = WIDTH - LEFT - 80, ROW * (len(rates) + 2)
    body = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = LEFT + room * share
        body.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="8" y2="{height - ROW}" stroke="#ddd"/>')
        body.append(f'<text x="{x:.1f}" y="{height - 6}" text-anchor="middle">{share:.0%}</text>')
    for at, (name, rate, (low, high), n) in enumerate(rates):
        y = ROW * (at + 1)
        left, right, middle = (LEFT + room * value for value in (low, high, rate))
        body.append(f'<text x="{LEFT - 12}" y="{y + 4}" text-anchor="end">{escape(visible(name)[:28])}</text>')
        body.append(f'<line x1="{left:.1f}" x2="{right:.1f}" y1="{y}" y2="{y}" stroke="#1d1f22" stroke-width="2"/>')
        body.append(f'<circle cx="{middle:.1f}" cy="{y}" r="4.5" fill="#2f5f9e"/>')
        body.append(f'<text x="{WIDTH - 72}" y="{y + 4}">n {n:,}</text>')
    return _svg(height, "pass rates", body)


def _stack(counts: dict[str, int]) -> str:
    total, x, body = sum(counts.values()), 0.0, list[str]()
    for at, (name, count) in enumerate(counts.items()):
        wide = WIDTH * count / total
        colour = COLOURS.get(name, "#5b7db1")
        body.append(f'<rect x="{x:.1f}" y="8" width="{wide:.1f}" height="28" fill="{colour}"/>')
        body.append(f'<rect x="{at % 3 * 210}" y="{46 + at // 3 * ROW}" width="12" height="12" fill="{colour}"/>')
        body.append(
            f'<text x="{at % 3 * 210 + 18}" y="{57 + at // 3 * ROW}">{escape(name)} {count:,} ({count / total:.0%})</text>'
        )
        x += wide
    return _svg(60 + (len(counts) + 2) // 3 * ROW, "shares", body)


def _bars(counts: dict[str, int]) -> str:
    most, wide = max(counts.values()), WIDTH / len(counts)
    body = []
    for at, (name, count) in enumerate(counts.items()):
        high = 120 * count / most if most else 0
        body.append(
            f'<rect x="{at * wide + 8:.1f}" y="{140 - high:.1f}" width="{wide - 16:.1f}" height="{high:.1f}" fill="#5b7db1"/>'
        )
        body.append(f'<text x="{(at + 0.5) * wide:.1f}" y="{134 - high:.1f}" text-anchor="middle">{count:,}</text>')
        body.append(f'<text x="{(at + 0.5) * wide:.1f}" y="158" text-anchor="middle">{escape(name)}</text>')
    return _svg(168, "rollouts by share of passes", body)


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
