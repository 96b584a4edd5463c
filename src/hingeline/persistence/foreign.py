"""What a file that is no model seems to be."""

from __future__ import annotations

UNKNOWN = "it is in no format known here"
_PICKLE = "it seems to be a Python pickle, which can run code and is never opened here"
_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"\x1f\x8b", "it seems to be a gzip file; decompress it first if a model is inside"),
    (b"PK\x03\x04", "it seems to be a ZIP archive, as torch.save and numpy.savez write"),
    (b"\x89HDF\r\n\x1a\n", "it seems to be an HDF5 file"),
    (b"\x93NUMPY", "it seems to be a NumPy array (.npy)"),
    (b"BZh", "it seems to be a bzip2 file; decompress it first if a model is inside"),
    (b"\xfd7zXZ\x00", "it seems to be an xz file; decompress it first if a model is inside"),
    (b"\x28\xb5\x2f\xfd", "it seems to be a Zstandard file; decompress it first"),
    (b"lCRF", "it seems to be a CRFsuite model; dump it as text and use import_crfsuite"),
    (b"FILEHEADER = {", "it seems to be a dump of a CRFsuite model; use import_crfsuite"),
    (b"solver_type ", "it seems to be a LIBLINEAR model; use import_liblinear"),
    (b"\x80\x02", _PICKLE),
    (b"\x80\x03", _PICKLE),
    (b"\x80\x04", _PICKLE),
    (b"\x80\x05", _PICKLE),
)


def seems_to_be(first: bytes) -> str:
    """What a file that is no model seems to be, from its first bytes."""
    if not first:
        return "it is empty"
    for signature, what in _SIGNATURES:
        if first.startswith(signature):
            return what
    try:
        text = first.decode()
    except UnicodeDecodeError as error:
        if error.start < len(first) - 3:  # the last character may be cut in two
            return UNKNOWN
        text = first[: error.start].decode()
    if text and all(c.isprintable() or c.isspace() for c in text):
        return "it seems to be a text file"
    return UNKNOWN
