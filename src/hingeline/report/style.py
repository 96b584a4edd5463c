"""The style sheet of the report: screen, phone, dark, print.

What is right is blue and what is wrong is orange, a pair that colour-blind readers can tell apart;
both also differ in shape, for print in black and white.
"""

from __future__ import annotations

from hingeline.report.matrices import LEVELS

_BASE = """\
:root {
  --text: #1c2126; --muted: #5a6570; --line: #d9dfe5; --panel: #f5f7f9; --back: #fff;
  --blue: 10 95 165; --orange: 196 78 6; --edge: rgb(0 0 0 / 0.18);
  --sans: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Helvetica Neue", Arial,
    sans-serif;
  --mono: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body {
  margin: 0 auto; padding: 2.5rem 1.5rem 3rem; max-width: 70rem; background: var(--back);
  color: var(--text); font: 1rem/1.55 var(--sans); font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere;
}
p { margin: 0 0 1rem; max-width: 44rem; }
h1, h2, h3, h4 { line-height: 1.25; text-wrap: balance; }
h1 { margin: 0; font-size: 2rem; font-weight: 650; letter-spacing: -0.015em; }
h2 { margin: 0 0 1rem; font-size: 1.375rem; font-weight: 650; letter-spacing: -0.01em; }
h3 { margin: 2rem 0 0.75rem; font-size: 1.0625rem; font-weight: 600; }
h4 { margin: 0 0 0.5rem; font-size: 1rem; font-weight: 600; }
a { color: rgb(var(--blue)); text-underline-offset: 0.2em; }
:focus-visible { outline: 2px solid rgb(var(--blue)); outline-offset: 2px; }
.skip { position: absolute; left: -100vw; }
.skip:focus { left: 1rem; top: 1rem; padding: 0.5rem 1rem; background: var(--back); }
.aside {
  position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%);
  white-space: nowrap;
}
section { padding-top: 2.25rem; margin-top: 2.25rem; border-top: 1px solid var(--line); }
.over { margin: 0 0 0.35rem; color: var(--muted); font-size: 0.875rem; }
.size { margin: 0.35rem 0 0; color: var(--muted); }
.lead { font-size: 1.125rem; }
.note, footer { color: var(--muted); font-size: 0.875rem; }
footer { margin-top: 3rem; padding-top: 1rem; border-top: 1px solid var(--line); }
footer p { margin: 0; }
nav ul { display: flex; flex-wrap: wrap; gap: 0.25rem 1.5rem; margin: 0; padding: 0; }
nav { margin-top: 1.75rem; }
nav li { list-style: none; }
nav a { display: inline-block; padding: 0.35rem 0; }
.figures {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(10rem, 1fr)); gap: 1px;
  margin: 1.75rem 0 0; border: 1px solid var(--line); border-radius: 0.5rem; overflow: hidden;
  background: var(--line);
}
.figures div { padding: 0.9rem 1.1rem 1rem; background: var(--back); }
.figures dt { color: var(--muted); font-size: 0.875rem; }
.figures dd { margin: 0; color: var(--muted); font-size: 0.8125rem; }
.figures dt + dd { color: var(--text); font-size: 1.625rem; font-weight: 600; line-height: 1.35; }
"""

_TABLES = """\
.scroll {
  position: relative; max-width: 100%; overflow-x: auto; margin: 0 0 1.5rem;
  /* A shadow at an edge beyond which there is more. */
  background:
    linear-gradient(to right, var(--back) 30%, transparent) left / 2.5rem 100% local,
    linear-gradient(to left, var(--back) 30%, transparent) right / 2.5rem 100% local,
    linear-gradient(to right, var(--edge), transparent) left / 0.7rem 100% scroll,
    linear-gradient(to left, var(--edge), transparent) right / 0.7rem 100% scroll;
  background-repeat: no-repeat;
}
.columns {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(27rem, 100%), 1fr));
  gap: 0.5rem 3rem; align-items: start;
}
.columns > * { min-width: 0; }
table { border-collapse: collapse; font-size: 0.9375rem; }
.columns table { width: 100%; }
caption { padding: 0 0 0.4rem; text-align: start; font-weight: 600; }
th, td {
  padding: 0.28rem 0.9rem 0.28rem 0; border-bottom: 1px solid var(--line); text-align: start;
  vertical-align: baseline; overflow-wrap: normal;
}
th { font-weight: 400; }
thead th { color: var(--muted); font-size: 0.8125rem; vertical-align: bottom; }
tr > :last-child { padding-inline-end: 0.25rem; }
/* A very long label or token wraps instead of pushing the numbers away. */
th bdi, td bdi {
  display: inline-block; max-width: 14rem; overflow-wrap: break-word; vertical-align: top;
}
.bars th bdi, .pairs td bdi, .texts td bdi { display: inline; overflow-wrap: anywhere; }
.matrix th bdi { display: inline; }
.n { text-align: end; white-space: nowrap; padding-inline: 0.6rem 0.25rem; }
.sum > * { font-style: italic; }
tr:not(.sum) + .sum > * { border-top: 2px solid var(--line); }
.pairs th { color: var(--muted); white-space: nowrap; }
.pairs td, .texts td { overflow-wrap: anywhere; }
.texts td:last-child { min-width: 14rem; }
.files td { overflow-wrap: anywhere; }
code, pre { font-family: var(--mono); font-size: 0.875em; }
.hash { display: inline-block; min-width: 16rem; }
pre { margin: 0; padding: 0.9rem 1.1rem; border-radius: 0.4rem; background: var(--panel); }
.matrix { font-size: 0.75rem; }
.matrix caption { font-size: 0.9375rem; }
.matrix th, .matrix td { padding: 0.25rem 0.2rem; border: 0; }
.matrix td {
  min-width: 2.1rem; text-align: end; white-space: nowrap; border: 1px solid var(--back);
}
.matrix td.d { font-weight: 650; }
.matrix td.no { color: var(--muted); text-align: center; }
.matrix thead th { vertical-align: bottom; color: var(--text); font-size: 0.75rem; }
.matrix thead div {
  writing-mode: vertical-rl; transform: rotate(180deg); max-height: 12rem; overflow: hidden;
  margin: 0 auto; white-space: nowrap;
}
.matrix tbody th {
  position: sticky; inset-inline-start: 0; max-width: 11rem; overflow: hidden;
  text-overflow: ellipsis; white-space: nowrap; background: var(--back); z-index: 1;
}
.matrix thead .corner { color: var(--muted); white-space: nowrap; }
.chips { display: flex; flex-wrap: wrap; gap: 0.35rem; margin: 0; padding: 0; }
.chips li {
  list-style: none; padding: 0.05rem 0.55rem; border: 1px solid var(--line); max-width: 100%;
  border-radius: 0.3rem; font-size: 0.875rem;
}
.cards {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(min(30rem, 100%), 1fr));
  gap: 1.25rem;
}
.card { min-width: 0; padding: 1rem 1.1rem; border: 1px solid var(--line); border-radius: 0.5rem; }
.sides {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(12.5rem, 100%), 1fr));
  gap: 0.75rem 1.5rem; align-items: start;
}
.bars { width: 100%; table-layout: fixed; font-size: 0.8125rem; }
.bars caption { color: var(--muted); font-weight: 400; }
.bars th { overflow-wrap: anywhere; padding-block: 0.15rem; }
.bars td { width: 5.5rem; padding-block: 0.15rem; background-repeat: no-repeat; }
.bars td[colspan] { width: auto; color: var(--muted); }
"""

_CHARTS = """\
.charts {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(22rem, 100%), 1fr));
  gap: 1rem 2rem; margin: 0 0 1.5rem;
}
.chart { display: block; width: 100%; max-width: 34rem; height: auto; }
.chart text { fill: var(--muted); font: 12px var(--sans); }
.chart .name { fill: var(--text); }
.grid { stroke: var(--line); stroke-width: 1; }
.axis, .tick { stroke: var(--muted); stroke-width: 1; fill: none; }
.frame { fill: none; stroke: var(--line); }
.rule { stroke: var(--muted); stroke-width: 1.2; stroke-dasharray: 2 4; }
.curve { fill: none; stroke-width: 2; stroke-linejoin: round; }
.curve.primal { stroke: rgb(var(--orange)); }
.curve.dual { stroke: rgb(var(--blue)); stroke-dasharray: 7 3; }
.curve.gap { stroke: var(--text); }
.mark { stroke: var(--back); stroke-width: 1; }
.mark.primal { fill: rgb(var(--orange)); }
.mark.dual { fill: rgb(var(--blue)); }
.mark.gap { fill: var(--text); }
"""

_TOKENS = """\
.errors { margin: 0; padding: 0; }
.errors > li { list-style: none; margin: 0 0 1.5rem; }
.which { margin: 0 0 0.35rem; color: var(--muted); font-size: 0.875rem; }
.sentence { display: flex; flex-wrap: wrap; gap: 0.5rem 0.15rem; align-items: flex-start; }
.t { display: inline-flex; flex-direction: column; padding: 0 0.3rem; max-width: 100%; }
.t > bdi { border-bottom: 1px solid rgb(var(--blue) / 0.55); }
.l { color: var(--muted); font-size: 0.6875rem; line-height: 1.45; unicode-bidi: plaintext; }
.x { border: 1.5px solid rgb(var(--orange)); border-radius: 0.25rem;
  background: rgb(var(--orange) / 0.1); }
.x > bdi { font-weight: 650; border-bottom: 2.5px solid rgb(var(--orange)); }
.y { color: rgb(var(--blue)); }
.z { color: rgb(var(--orange)); font-weight: 600; }
.y::before { content: "✓ " / ""; }
.z::before { content: "✗ " / ""; }
.gap { align-self: center; padding: 0 0.5rem; color: var(--muted); font-size: 0.8125rem; }
.legend { display: flex; flex-wrap: wrap; gap: 0.5rem 1rem; align-items: center;
  color: var(--muted); font-size: 0.875rem; }
.legend .sentence { color: var(--text); font-size: 1rem; }
"""

_SMALL = """\
@media (max-width: 40rem) {
  body { padding: 1.5rem 1rem 2rem; }
  h1 { font-size: 1.625rem; }
  section { padding-top: 1.75rem; margin-top: 1.75rem; }
  .figures { grid-template-columns: 1fr 1fr; }
  .figures dt + dd { font-size: 1.375rem; }
  .chart text { font-size: 13px; }
  .matrix tbody th { max-width: 7rem; }
}
"""

# Only on a screen: paper is white.
_DARK = """\
@media screen and (prefers-color-scheme: dark) {
  :root {
    --text: #e4e7ea; --muted: #9ba6b1; --line: #343b42; --panel: #1e2328; --back: #15181b;
    --blue: 96 172 240; --orange: 244 146 72; --edge: rgb(0 0 0 / 0.7);
  }
}
"""

_PRINT = """\
@page { size: A4; margin: 16mm 15mm; }
@page sideways { size: A4 landscape; margin: 12mm; }
@media print {
  :root { --text: #000; --muted: #333; --line: #bbb; --panel: #fff; --back: #fff; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  nav, .skip, footer { display: none; }
  .scroll { overflow: visible; background: none; }
  h1 { font-size: 18pt; }
  h2, h3, h4, caption, .which { break-after: avoid; }
  section { padding-top: 12pt; margin-top: 12pt; }
  tr, svg, .card, .figures, .t, .legend { break-inside: avoid; }
  .errors > li, .sheet, .columns .scroll { break-inside: avoid; }
  thead { display: table-header-group; }
  p { orphans: 3; widows: 3; }
  .charts { grid-template-columns: 1fr 1fr; gap: 6pt 12pt; }
  .columns { display: block; }
  .cards { display: block; }
  .card { margin: 0 0 6pt; }
  .sides { grid-template-columns: 1fr 1fr; }
  th, td { padding-block: 1.6pt; }
  .card { padding: 4pt 8pt 5pt; }
  .card h4 { margin: 0; font-size: 10pt; }
  table { font-size: 9pt; }
  .bars { font-size: 7.5pt; line-height: 1.35; }
  .bars th, .bars td { padding-block: 0.6pt; }
  pre { border: 1px solid var(--line); white-space: pre-wrap; overflow-wrap: anywhere; }
  .matrix, .matrix thead th { font-size: 6pt; }
  .matrix th, .matrix td { padding: 1.4pt 1.3pt; }
  .matrix td { min-width: 0; }
  .matrix tbody th { position: static; max-width: 28mm; }
  .sideways { page: sideways; }
  .sideways .matrix, .sideways .matrix thead th { font-size: 5.6pt; }
  .matrix td, .bars td, .x { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""


def _shades() -> str:
    """Steps of shading, and bars behind weights."""
    lines = []
    for k in range(1, LEVELS + 1):
        strength = f"{0.06 + 0.44 * k / LEVELS:.2f}"
        width = f"{100 * k / LEVELS:.0f}%"
        for shade, bar, colour in (("b", "p", "blue"), ("o", "m", "orange")):
            mixed = f"rgb(var(--{colour}) / {strength})"
            pale = f"rgb(var(--{colour}) / 0.22)"
            lines.append(f".{shade}{k} {{ background: {mixed}; }}")
            lines.append(
                f".{bar}{k} {{ background-image: linear-gradient({pale}, {pale}); "
                f"background-size: {width} 100%; background-position: right; }}"
            )
    return "\n".join(lines) + "\n"


STYLE = "".join((_BASE, _TABLES, _shades(), _CHARTS, _TOKENS, _SMALL, _DARK, _PRINT))
