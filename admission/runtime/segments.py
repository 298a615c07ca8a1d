"""The files of a journal: framed, checksummed, compressed, and unpickled by a reader that knows only our own values."""

from __future__ import annotations

import io
import pickle
import random
import struct
import sys
import zlib
from collections import OrderedDict, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MAGIC = b"tidegate-journal-1\n"
SUFFIX = ".tgj"
SNAPSHOT = 1
BATCH = 2
_HEADER = struct.Struct(">BII")
_MAX_FRAME = 256 * 2**20

_PLAIN = {
    ("collections", "deque"): deque,
    ("collections", "OrderedDict"): OrderedDict,
    ("random", "Random"): random.Random,
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("builtins", "object"): object,
}


class JournalError(ValueError):
    """A segment cannot be read."""


def frame(kind: int, payload: bytes) -> bytes:
    """Kind, length, checksum, compressed payload."""
    packed = zlib.compress(payload, 1)
    return _HEADER.pack(kind, len(packed), zlib.crc32(packed)) + packed


def encode(value: Any) -> bytes:
    """Pickled, for `decode`."""
    return pickle.dumps(value, protocol=5)


def decode(data: bytes) -> list[Any]:
    """Back to the values encoded one after the other.

    JournalError for anything that is not of the core, the vocabulary or a plain container.
    """
    values, source = [], io.BytesIO(data)
    try:
        while source.tell() < len(data):
            values.append(_Restricted(source).load())
    except JournalError:
        raise
    except Exception as error:
        # Garbage makes pickle raise nearly anything.
        raise JournalError(f"cannot be decoded: {error}") from error
    return values


def segments(path: Path) -> list[Path]:
    """The segments of a journal folder, oldest first; a file is itself."""
    return [path] if path.is_file() else sorted(path.glob(f"*{SUFFIX}"))


def frames(path: Path) -> Iterator[tuple[int, bytes]]:
    """Kind and payload of each whole frame. A torn last frame ends the file quietly: the process was killed."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise JournalError(f"{path.name}: not a journal segment")
        while len(header := file.read(_HEADER.size)) == _HEADER.size:
            kind, length, checksum = _HEADER.unpack(header)
            if length > _MAX_FRAME:
                raise JournalError(f"{path.name}: a frame of {length} bytes")
            packed = file.read(length)
            if len(packed) < length:
                return
            if zlib.crc32(packed) != checksum:
                raise JournalError(f"{path.name}: checksum of a frame is wrong")
            yield kind, zlib.decompress(packed)


class _Restricted(pickle.Unpickler):
    """Builds instances of our own value classes and nothing else, whatever the file asks for."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _PLAIN:
            return _PLAIN[module, name]
        if module == "admission.vocabulary" or module.startswith("admission.core."):
            if module not in sys.modules:
                __import__(module)
            found = getattr(sys.modules[module], name, None)
            if isinstance(found, type) and found.__module__ == module:
                return found
        raise JournalError(f"{module}.{name} does not belong in a journal")
