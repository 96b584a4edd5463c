"""Readers and writers of file formats, and published data sets; imported when first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hingeline.data.arff import read_arff, read_mulan_labels, write_arff, write_mulan_labels
    from hingeline.data.array_sets import (
        load_letter,
        load_mnist,
        load_msrc21,
        load_multilabel,
        load_news20,
        load_snakes,
        load_usps,
        load_weizmann_horses,
    )
    from hingeline.data.conll import read_conll, write_conll
    from hingeline.data.conllu import ConlluDocument, read_conllu, write_conllu
    from hingeline.data.crfsuite import read_crfsuite, write_crfsuite
    from hingeline.data.digits import load_digit_dates
    from hingeline.data.formats import FORMATS, convert, read_any
    from hingeline.data.idx import read_idx
    from hingeline.data.letters import read_letters
    from hingeline.data.samples import (
        FlatData,
        LabelledSequences,
        MultilabelData,
        Vocabulary,
        read_vocabulary,
        write_vocabulary,
    )
    from hingeline.data.sets import (
        load_brown,
        load_citations,
        load_conll2000,
        load_conll2002,
        load_ocr_letters,
        load_seminars,
        load_treebank_sample,
        load_ud_english_ewt,
        load_umass_citations,
    )
    from hingeline.data.sniff import detect_format
    from hingeline.data.svmlight import (
        read_multilabel,
        read_svmhmm,
        read_svmlight,
        write_multilabel,
        write_svmhmm,
        write_svmlight,
    )
    from hingeline.data.text import ParseError, atomic_text, open_text
    from hingeline.data.trees import Tree, iter_trees, read_trees, write_trees

_MODULES = {
    "arff": ("read_arff", "read_mulan_labels", "write_arff", "write_mulan_labels"),
    "array_sets": (
        "load_letter",
        "load_mnist",
        "load_msrc21",
        "load_multilabel",
        "load_news20",
        "load_snakes",
        "load_usps",
        "load_weizmann_horses",
    ),
    "conll": ("read_conll", "write_conll"),
    "conllu": ("ConlluDocument", "read_conllu", "write_conllu"),
    "crfsuite": ("read_crfsuite", "write_crfsuite"),
    "digits": ("load_digit_dates",),
    "formats": ("FORMATS", "convert", "read_any"),
    "idx": ("read_idx",),
    "letters": ("read_letters",),
    "samples": (
        "FlatData",
        "LabelledSequences",
        "MultilabelData",
        "Vocabulary",
        "read_vocabulary",
        "write_vocabulary",
    ),
    "sets": (
        "load_brown",
        "load_citations",
        "load_conll2000",
        "load_conll2002",
        "load_ocr_letters",
        "load_seminars",
        "load_treebank_sample",
        "load_ud_english_ewt",
        "load_umass_citations",
    ),
    "sniff": ("detect_format",),
    "svmlight": (
        "read_multilabel",
        "read_svmhmm",
        "read_svmlight",
        "write_multilabel",
        "write_svmhmm",
        "write_svmlight",
    ),
    "text": ("ParseError", "atomic_text", "open_text"),
    "trees": ("Tree", "iter_trees", "read_trees", "write_trees"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "FORMATS",
    "ConlluDocument",
    "FlatData",
    "LabelledSequences",
    "MultilabelData",
    "ParseError",
    "Tree",
    "Vocabulary",
    "atomic_text",
    "convert",
    "detect_format",
    "iter_trees",
    "load_brown",
    "load_citations",
    "load_conll2000",
    "load_conll2002",
    "load_digit_dates",
    "load_letter",
    "load_mnist",
    "load_msrc21",
    "load_multilabel",
    "load_news20",
    "load_ocr_letters",
    "load_seminars",
    "load_snakes",
    "load_treebank_sample",
    "load_ud_english_ewt",
    "load_umass_citations",
    "load_usps",
    "load_weizmann_horses",
    "open_text",
    "read_any",
    "read_arff",
    "read_conll",
    "read_conllu",
    "read_crfsuite",
    "read_idx",
    "read_letters",
    "read_mulan_labels",
    "read_multilabel",
    "read_svmhmm",
    "read_svmlight",
    "read_trees",
    "read_vocabulary",
    "write_arff",
    "write_conll",
    "write_conllu",
    "write_crfsuite",
    "write_mulan_labels",
    "write_multilabel",
    "write_svmhmm",
    "write_svmlight",
    "write_trees",
    "write_vocabulary",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
