"""Small models, hostile text, and a parser that refuses pages that are not well formed."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser

import numpy as np
import pytest

from hingeline import ChainSSVM, MulticlassSSVM
from hingeline.report import render_report, sections

VOID = {"wbr", "meta", "link", "br", "hr", "img", "input"}

HOSTILE = [
    "<script>document.title='owned'</script>",
    "\"'><img src=x onerror=\"document.title='owned'\">",
    "</style></title></pre></table><h1>",
    "&lt;b&gt; &amp; &#60;",
    "שלום עולם",
    "\u202egnp.exe\u202c\u2066",
    "a\x00b\x1b[31mc\r\n\td\x7f\x85",
    "\ud800 alone \ufffe",
    "javascript:alert(1)",
    "",
    " \u00a0 ",
    "wide" * 100,
]


@dataclass
class Element:
    tag: str
    attrs: dict = field(default_factory=dict)
    children: list = field(default_factory=list)

    def all(self, tag=None, **attrs):
        """Elements below, in order; ``class_`` is one of the classes."""
        kind = attrs.pop("class_", None)
        found = []
        for child in self.children:
            if isinstance(child, str):
                continue
            if (
                tag in (None, child.tag)
                and (kind is None or kind in child.attrs.get("class", "").split())
                and all(child.attrs.get(k) == v for k, v in attrs.items())
            ):
                found.append(child)
            found += child.all(tag, **attrs, **({} if kind is None else {"class_": kind}))
        return found

    def one(self, tag=None, **attrs):
        (found,) = self.all(tag, **attrs)
        return found

    @property
    def text(self):
        return "".join(c if isinstance(c, str) else c.text for c in self.children)


class _Parser(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.root = Element("root")
        self.open = [self.root]

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), f"<{tag}> has an attribute twice"
        element = Element(tag, {k: "" if v is None else v for k, v in attrs})
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data):
        self.open[-1].children.append(data)

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data}")


def parse(page):
    parser = _Parser()
    parser.feed(page)
    parser.close()
    assert len(parser.open) == 1, f"<{parser.open[-1].tag}> is not closed"
    return parser.root


REFERENCES = ("src", "href", "srcset", "data", "action", "poster", "xlink:href", "background")


def check_page(root):
    """What must hold for every page."""
    drawn = {id(part) for svg in root.all("svg") for part in svg.all()}
    for element in root.all():
        for name in REFERENCES:
            value = element.attrs.get(name, "#")
            assert value.startswith(("#", "data:")), f"{element.tag} {name}={value}"
        assert not any(name.startswith("on") for name in element.attrs)
        assert "style" not in element.attrs or id(element) in drawn
        assert element.tag not in ("iframe", "object", "embed", "form", "base")
        assert element.tag != "img" or element.attrs["src"].startswith("data:image/png;base64,")
    script = root.one("script").text.encode()
    digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
    policy = root.one("meta", **{"http-equiv": "Content-Security-Policy"}).attrs["content"]
    assert f"script-src 'sha256-{digest}'" in policy
    ids = [e.attrs["id"] for e in root.all() if "id" in e.attrs]
    assert len(set(ids)) == len(ids)
    targets = [a.attrs["href"][1:] for a in root.all("a")]
    assert set(targets) <= set(ids)
    for element in root.all():
        for name in element.attrs.get("aria-labelledby", "").split():
            assert name in ids
    for table in root.all("table"):
        assert table.one("caption").text.strip()
        widths = {
            sum(int(c.attrs.get("colspan", 1)) for c in tr.children if not isinstance(c, str))
            for tr in table.all("tr")
        }
        assert len(widths) == 1
    for svg in root.all("svg"):
        assert svg.attrs["role"] == "img"
        assert svg.one("title").text
        assert svg.one("desc").text
    levels = [int(e.tag[1]) for e in root.all() if re.fullmatch("h[1-6]", e.tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels))
    for landmark in ("header", "nav", "main", "footer"):
        root.one(landmark)
    assert root.one("html").attrs["lang"] == "en"
    assert root.one("meta", name="viewport").attrs["content"].startswith("width=device-width")
    links = [a.attrs["href"][1:] for a in root.one("nav").all("a")]
    assert links == [s.attrs["id"] for s in root.one("main").all("section")]
    return links


def page_of(model, **arguments):
    page = render_report(model, **arguments)
    page.encode("utf-8")
    root = parse(page)
    return root, check_page(root)


def rows_of(root, caption):
    (table,) = [t for t in root.all("table") if t.one("caption").text.startswith(caption)]
    return [[c.text for c in tr.children] for tr in table.one("tbody").all("tr")]


draw_once = cache(sections.draw_charts)


@pytest.fixture(autouse=True, scope="module")
def charts_once():
    """Charts of one fit are drawn once: `test_figures.py` looks at them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sections, "draw_charts", lambda history, tol: draw_once(tuple(history), tol))
        yield


@pytest.fixture(name="page_of", scope="session")
def page_of_fixture():
    """Function: a page, parsed and checked, and the ids of its sections."""
    return page_of


@pytest.fixture(name="rows_of", scope="session")
def rows_of_fixture():
    """Function: the texts of a table's cells, by the beginning of its caption."""
    return rows_of


@pytest.fixture(name="parse", scope="session")
def parse_fixture():
    return parse


@pytest.fixture(scope="session")
def hostile():
    return list(HOSTILE)


def random_chain(labels, n=40, seed=0, length=12, n_features=4, **parameters):
    """A model of random labels, and its data."""
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(rng.integers(2, length), n_features)) for _ in range(n)]
    y = [[labels[k] for k in rng.integers(0, len(labels), len(x))] for x in X]
    y[0] = [labels[k % len(labels)] for k in range(len(X[0]))]
    parameters = {"C": 0.1, "random_state": 0, "tol": 0.05, **parameters}
    return ChainSSVM(**parameters).fit(X, y), X, y


@pytest.fixture(scope="session")
def make_chain():
    return random_chain


@pytest.fixture(scope="session")
def chain():
    """(model, X, y) with span tags."""
    return random_chain(["B-NP", "I-NP", "B-VP", "O"])


@pytest.fixture(scope="session")
def flat():
    """(model, X, y) of single labels."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 5))
    y = np.array(["left", "middle", "right"])[np.argmax(X[:, :3], axis=1)]
    return MulticlassSSVM(random_state=0).fit(X, y), X, y
