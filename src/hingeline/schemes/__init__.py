"""Tag schemes: how labels such as ``B-NP`` mark spans of tokens.

A tag is ``O`` or a prefix with a type, ``B-NP``; the type may hold hyphens (``B-foo-bar``) or be
missing (``B``). The schemes differ in what a prefix says about its span:

======  ============  ===========================================================================
IO      I             inside a span; neighbours of one type are one span
IOB1    B I           I inside, B only where a span touches one of its own type before it
IOB2    B I           B first, I after it (also called BIO)
IOE1    I E           I inside, E only where a span touches one of its own type after it
IOE2    I E           E last, I before it
IOBES   B I E S       B first, E last, I between, S a span of one token (also called BIOES)
BILOU   B I L U       the same with L for E and U for S (also called BILUO)
======  ============  ===========================================================================
"""

from hingeline.schemes.moves import detect_from_arrays, detect_scheme, valid_moves
from hingeline.schemes.reading import span_arrays, spans
from hingeline.schemes.tags import SCHEMES, is_tag, scheme_name
from hingeline.schemes.writing import convert_scheme, explain_invalid

__all__ = [
    "SCHEMES",
    "convert_scheme",
    "detect_from_arrays",
    "detect_scheme",
    "explain_invalid",
    "is_tag",
    "scheme_name",
    "span_arrays",
    "spans",
    "valid_moves",
]
