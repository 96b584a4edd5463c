"""Mulan's XML file that names the labels of an ARFF file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

from hingeline.data.output import Target, atomic_text
from hingeline.data.text import Source, open_text


def read_mulan_labels(source: Source) -> list[str]:
    """Read the names of labels from Mulan's XML file, nested ones after those around them.

    Parameters
    ----------
    source : path, "-", file object or TextSource

    Returns
    -------
    list of str

    Raises
    ------
    ParseError
        XML that is malformed or declares a document type: entities are not expanded.
    """
    names: list[str] = []
    with open_text(source) as text:
        parser = expat.ParserCreate(encoding="utf-8")

        def refuse(*_: Any) -> None:
            raise text.error(
                parser.CurrentLineNumber, "a document type is declared; remove the declaration."
            )

        def start(tag: str, given: dict[str, str]) -> None:
            if tag.rpartition(":")[2] == "label":
                if not given.get("name"):
                    raise text.error(parser.CurrentLineNumber, "a label has no name; add name=….")
                names.append(given["name"])

        parser.StartDoctypeDeclHandler = refuse
        parser.StartElementHandler = start
        try:
            for _, lines in text.blocks():
                parser.Parse(b"\n".join(lines) + b"\n", False)
            parser.Parse(b"", True)
        except expat.ExpatError as error:
            raise text.error(
                error.lineno, f"the XML is malformed ({expat.ErrorString(error.code)}); correct it."
            ) from None
        if not names:
            raise text.error(None, "there is no <label name=…>; is this Mulan's list of labels?")
        return names


def write_mulan_labels(target: Target, names: Sequence[str]) -> None:
    """Write names of labels as Mulan's XML file."""
    with atomic_text(target) as out:
        out.write('<?xml version="1.0" encoding="utf-8"?>\n')
        out.write('<labels xmlns="http://mulan.sourceforge.net/labels">\n')
        for name in names:
            out.write(f"<label name={quoteattr(name)}></label>\n")
        out.write("</labels>\n")
