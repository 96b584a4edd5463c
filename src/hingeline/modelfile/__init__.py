"""Model files: a JSON header and named arrays in one safetensors file, written atomically.

The file is an ordinary safetensors file, which any safetensors library opens:

* 8 bytes: length of the JSON that follows, little-endian;
* JSON: ``{"__metadata__": {...}, name: {"dtype", "shape", "data_offsets"}, ...}``, where the
  metadata, all text, is ``{"format": "hingeline", "version": "1", "header": "<JSON>",
  "crc32": "<8 hex digits>"}``; the checksum is of the header's text and of all arrays
  with their names, and tells damage, not malice;
* the arrays' bytes, little-endian and C-contiguous, without gaps, the widest numbers first so
  that all are aligned.

Nothing in it is code, and no pickle is read or written. A file is not trusted: sizes are checked
against the file before anything is allocated for them, so what is read takes no more memory than
the file has bytes, plus a bounded header. Arrays are read into memory of their own (aligned and
writable, as kernels want them), not mapped: a mapped file that is cut short later ends the
process, and cannot be replaced on every system.

This module knows no estimator; :mod:`hingeline.modelfile.estimators` says what a model's header
and arrays are.
"""

from hingeline.modelfile.checks import VERSION, ModelFileError, TensorInfo
from hingeline.modelfile.files import read_header, read_model, write_model

__all__ = [
    "VERSION",
    "ModelFileError",
    "TensorInfo",
    "read_header",
    "read_model",
    "write_model",
]
