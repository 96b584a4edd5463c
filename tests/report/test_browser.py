"""Pages in a real browser: nothing overflows, nothing is cut off, nothing is logged or fetched."""

from __future__ import annotations

import json
import re
import subprocess
from html import escape

import numpy as np
import pytest

from browser import COMMAND, wants_browser
from hingeline import SSVM, Graph, GraphSSVM, MultilabelSSVM
from hingeline.evaluation.metrics import evaluate
from hingeline.report import render_report

# Measures a page in a frame, and writes what it finds into the title of the page around it, where
# --dump-dom shows it: a window cannot be as narrow as a phone, a frame can.
PROBE = """\
<script>
const root = document.documentElement, cut = [];
for (const svg of document.querySelectorAll("svg.chart")) {
  const frame = svg.getBoundingClientRect();
  for (const text of svg.querySelectorAll("text")) {
    const box = text.getBoundingClientRect();
    if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1
        || box.bottom > frame.bottom + 1) cut.push(text.textContent);
  }
}
const beyond = [...document.querySelectorAll("main *, header *")].filter(
  e => !e.closest(".scroll, .aside") && e.getBoundingClientRect().right > innerWidth + 1
).map(e => e.tagName + "." + e.getAttribute("class"));
const found = JSON.parse(parent.document.title);
found[window.name] = {
  owned: document.title == "owned", width: innerWidth, scroll: root.scrollWidth, cut,
  beyond: beyond.slice(0, 5), scripts: document.scripts.length, images: document.images.length,
  fetched: performance.getEntriesByType("resource").map(e => e.name),
  back: getComputedStyle(document.body).backgroundColor,
  wide: [...document.querySelectorAll(".scroll")].filter(e => e.scrollWidth > e.clientWidth + 1)
    .map(e => e.getAttribute("aria-label")),
  sums: [...document.querySelectorAll(".sum th")].map(e => getComputedStyle(e).borderTopWidth),
};
parent.document.title = JSON.stringify(found);
</script>"""
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')


pytestmark = [pytest.mark.slow, wants_browser]


@pytest.fixture(scope="module")
def browse(tmp_path_factory):
    """Run the browser on a page; its standard output, and what was logged to the console."""
    folder = tmp_path_factory.mktemp("browser")

    def run(page, *options, width=1200, height=900):
        path = folder / "page.html"
        path.write_text(page, encoding="utf-8")
        done = subprocess.run(
            [
                *COMMAND,
                "--enable-logging=stderr",
                f"--user-data-dir={folder / 'profile'}",
                f"--window-size={width},{height}",
                *options,
                path.as_uri(),
            ],
            capture_output=True,
            timeout=300,
            check=True,
        )
        logged = [line for line in done.stderr.decode().splitlines() if "CONSOLE" in line]
        return done.stdout.decode(), logged

    return run


def unfold(page):
    """A page with everything open, so that all of it is measured."""
    return re.sub(r"<details([^>]*?)(?: open)?>", r"<details\1 open>", page)


def framed(pages):
    """One page that holds others, each as wide as asked for."""
    frames = "".join(
        f'<iframe name="{escape(name)}" width="{width}" height="900" style="border:0" '
        f'srcdoc="{escape(page)}"></iframe>'
        for name, (page, width) in pages.items()
    )
    return (
        '<!DOCTYPE html><html><head><meta charset="utf-8"><title>{}</title>'
        f'<meta name="color-scheme" content="light dark"></head><body>{frames}</body></html>'
    )


@pytest.fixture(scope="module")
def measure(browse, parse):
    """Measure pages, given by name with the width to show them at."""

    def run(pages, *options):
        probed = {
            name: (unfold(POLICY.sub("", page)).replace("</body>", PROBE + "</body>"), width)
            for name, (page, width) in pages.items()
        }
        dom, logged = browse(framed(probed), "--dump-dom", *options)
        title = re.search(r"<title>(.*?)</title>", dom, re.DOTALL)[1]
        found = json.loads(parse(f"<p>{title}</p>").text)
        assert {name: seen["width"] for name, seen in found.items()} == {
            name: width for name, (_, width) in pages.items()
        }
        return found, logged

    return run


@pytest.fixture(scope="module")
def pages(request):
    """Pages of several models by name."""
    make_chain = request.getfixturevalue("make_chain")
    hostile = request.getfixturevalue("hostile")
    chain, X, y = request.getfixturevalue("chain")
    flat, _, y_flat = request.getfixturevalue("flat")
    python_chain = request.getfixturevalue("python_chain")
    rng = np.random.default_rng(0)
    predicted = chain.predict(X)
    found = {
        "chain": render_report(
            chain,
            evaluation=evaluate(y, predicted, bootstrap=10),
            y_true=y,
            y_pred=predicted,
            tokens=[[f"token{t}" for t in range(len(x))] for x in X],
            command="hingeline train train.txt --model chunker.hinge --C 0.1 --tol 0.005 " * 3,
            data={"training": {"name": "train.txt.gz", "sha256": "0123456789abcdef" * 4}},
        ),
        "flat": render_report(
            flat, y_true=y_flat, y_pred=y_flat[::-1], tokens=["a text of some length"] * len(y_flat)
        ),
        "bare": render_report(chain.with_weights(chain.weights_)),
    }
    model, X, y = make_chain(hostile, n=30, max_iter=2, tol=10.0, n_features=len(hostile))
    found["hostile"] = render_report(
        model,
        y_true=y,
        y_pred=[labels[::-1] for labels in y],
        tokens=[[hostile[k] for k in rng.integers(0, len(hostile), len(x))] for x in X],
        title=hostile[0],
        command=hostile[1] * 10,
        data={hostile[0]: {"name": hostile[11], "sha256": hostile[11]}},
        date=hostile[11],
        feature_names=hostile,
    )
    model, X, y = make_chain([f"label-{k:02d}" for k in range(35)], max_iter=2, tol=10.0)
    found["many"] = render_report(model, y_true=y, y_pred=model.predict(X))
    model, X, y = make_chain([f"B-TYPE{k}" for k in range(22)], max_iter=2, tol=10.0)
    found["tags"] = render_report(model, y_true=y, y_pred=model.predict(X))
    X = [rng.normal(size=(3, 2)) for _ in range(5)]
    y = [rng.integers(0, 3, 3) for _ in X]
    own = SSVM(python_chain(), max_iter=2, tol=0.9).fit(X, y)
    found["own"] = render_report(own, y_true=y, y_pred=own.predict(X))
    X = rng.normal(size=(30, 4))
    y = (X[:, :3] + rng.normal(size=(30, 3)) > 0).astype(int)
    sets = MultilabelSSVM(C=0.1).fit(X, y)
    sets.classes_ = np.array([hostile[0], hostile[11], "plain"], dtype=object)
    found["sets"] = render_report(sets, y_true=y, y_pred=1 - y)
    X = [Graph(rng.normal(size=(6, 2)), edges=[(0, 1), (1, 2)]) for _ in range(5)]
    y = [rng.choice(["sky", "grass"], 6).tolist() for _ in X]
    graphs = GraphSSVM(max_iter=2, tol=0.9).fit(X, y)
    predicted = [labels[::-1] for labels in y]
    found["graph"] = render_report(graphs, y_true=y, y_pred=predicted, regions=[(2, 3)] * 5)
    return found


NAMED = ("chain", "flat", "bare", "hostile", "many", "tags", "own", "sets", "graph")


@pytest.fixture(scope="module")
def screens(measure, pages):
    """All pages on a phone and on a desk, in one run of the browser."""
    return measure({f"{n} {w}": (pages[n], w) for n in NAMED for w in (390, 1200)})


@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("name", NAMED)
def test_fits_the_screen(screens, name, width):
    found = screens[0][f"{name} {width}"]
    assert found["scroll"] <= width
    assert found["beyond"] == []
    assert found["cut"] == []
    assert found["fetched"] == []
    assert found["scripts"] == 2  # the page's and the probe's own
    assert (found["images"] > 0) == (name == "graph")
    assert not found["owned"]
    if name == "many":
        assert found["wide"]  # in its own box
    if name == "tags":
        assert {"Spans by type", "Tokens by label", "Parameters"}.isdisjoint(found["wide"])
        assert [line == "2px" for line in found["sums"]] == [True, False, False]


def test_nothing_is_logged(screens, browse, pages):
    assert screens[1] == []
    # With its own policy, and without the probe.
    dom, logged = browse(framed({name: (pages[name], 390) for name in NAMED}), "--dump-dom")
    assert logged == []
    assert dom.count("<iframe") == len(NAMED)


def test_print_layout_fits_the_paper(measure, pages):
    """The print style on a screen as wide as what A4 leaves between its margins."""
    widths = {}
    for name in NAMED:
        # Large matrices are printed on a page laid sideways: 297 mm less twice 12 mm.
        millimetres = 273 if 'class="sheet sideways"' in pages[name] else 180
        page = pages[name].replace("@media print", "@media all")
        widths[name] = (page, int(millimetres / 25.4 * 96))
    found, _ = measure(widths)
    over = {name: seen["scroll"] - seen["width"] for name, seen in found.items()}
    assert over == dict.fromkeys(NAMED, 0)


@pytest.mark.parametrize("name", ["chain", "many"])
def test_pdf(browse, pages, tmp_path, name):
    target = tmp_path / "page.pdf"
    browse(pages[name], f"--print-to-pdf={target}", "--no-pdf-header-footer")
    content = target.read_bytes()
    assert content.startswith(b"%PDF-")
    assert len(content) > 20_000
    assert len(re.findall(rb"/Type\s*/Page\b", content)) >= 3
    boxes = [box.split() for box in re.findall(rb"/MediaBox\s*\[([^]]*)\]", content)]
    sideways = any(float(width) > float(height) for _, _, width, height in boxes)
    assert sideways == (name == "many")


def test_screenshot(browse, pages, tmp_path):
    target = tmp_path / "page.png"
    browse(pages["chain"], f"--screenshot={target}", width=390)
    content = target.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    assert int.from_bytes(content[16:20], "big") == 390
    assert len(content) > 10_000  # not blank


def test_dark_mode(measure, pages, screens):
    found, _ = measure({"dark": (pages["flat"], 390)}, "--blink-settings=preferredColorScheme=0")
    assert screens[0]["flat 390"]["back"] == "rgb(255, 255, 255)"
    assert max(map(int, re.findall(r"\d+", found["dark"]["back"])[:3])) < 60


# Folds and filters: what a reader does -----------------------------------------------------------

CLICKS = """\
<script>
const link = document.querySelector("a[data-key]"), said = [];
const visible = () => [...document.querySelectorAll("#errors [data-keys]")].filter(e => !e.hidden);
said.push(visible().length);
link.click();
said.push(link.dataset.key, visible().map(e => e.dataset.keys.split(" ")),
  document.activeElement.tagName, document.querySelector("#filter output").textContent);
const label = document.querySelector("#filter select");
document.querySelectorAll("#filter select")[1].value = "";
label.value = label.options[1].value;
label.dispatchEvent(new Event("input", {bubbles: true}));
said.push(label.value, visible().map(e => e.dataset.keys.split(" ")));
const details = [...document.querySelectorAll("details")];
document.getElementById("all").click();
said.push(details.every(fold => fold.open));
document.getElementById("all").click();
said.push(details.some(fold => fold.open));
document.title = JSON.stringify(said);
</script>"""


@pytest.mark.parametrize("name", ["chain", "flat"])
def test_the_matrix_filters_errors(browse, pages, parse, name):
    page = POLICY.sub("", pages[name]).replace("</body>", CLICKS + "</body>")
    dom, logged = browse(page, "--dump-dom")
    title = re.search(r"<title>(.*?)</title>", dom, re.DOTALL)[1]
    n, key, found, focus, told, label, others, opened, closed = json.loads(
        parse(f"<p>{title}</p>").text
    )
    assert logged == []
    assert 0 < len(found) < n
    assert all(key in keys for keys in found)
    assert focus == "SELECT"
    assert told == f"{len(found)} of {n} shown"
    assert others
    assert all(label in keys for keys in others)
    assert (opened, closed) == (True, False)


def test_links_open_what_is_folded(browse, pages):
    """Without the script: a fragment opens the folds that it is in."""
    script = re.compile(r"<script>.*?</script>", re.DOTALL)
    look = (
        '<script>addEventListener("load", () => { location.hash = "weights"; setTimeout(() => {'
        'document.title = "open: " + document.getElementById("weights").closest("details").open'
        "}, 300); });</script>"
    )
    page = script.sub("", POLICY.sub("", pages["chain"])).replace("</body>", look + "</body>")
    dom, _ = browse(page, "--dump-dom", "--virtual-time-budget=3000")
    assert "<title>open: true" in dom


# The instruments themselves ----------------------------------------------------------------------


def test_the_probe_sees_what_is_wrong(measure, pages):
    chart = '<svg class="chart" viewBox="'
    script = "<script>document.title = 'owned'</script>"
    broken = {
        "wide": pages["bare"].replace("<footer>", "<div style='width:900px'>x</div><footer>"),
        "cut": pages["chain"].replace(f"{chart}0 0", f"{chart}60 0"),
        "owned": pages["bare"].replace("<footer>", f"{script}<footer>"),
    }
    found, _ = measure({name: (page, 390) for name, page in broken.items()})
    assert found["wide"]["scroll"] >= 900
    assert "objective" in found["cut"]["cut"]
    assert found["owned"]["owned"]


def test_the_log_sees_errors_and_the_policy_stops_scripts(browse, pages):
    script = "<script>document.title = 'owned'; console.error('a message')</script>"
    page = pages["bare"].replace("<footer>", script + "<footer>")
    dom, logged = browse(page, "--dump-dom")
    assert "<title>owned" not in dom
    assert any("Content Security Policy" in line for line in logged)
    dom, logged = browse(POLICY.sub("", page), "--dump-dom")
    assert "<title>owned" in dom
    assert any("a message" in line for line in logged)
