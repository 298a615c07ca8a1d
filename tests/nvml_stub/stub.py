"""Builds the NVML stand-in and writes the file that it answers from.

`python tests/nvml_stub/stub.py DIRECTORY` builds it there and prints the two variables that a process needs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).with_name("nvml_stub.c")


def compiler() -> str | None:
    """The C compiler at hand, None when there is none."""
    return shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")


def build(directory: Path, without: tuple[str, ...] = ()) -> Path:
    """Compiles the library into `directory`, lacking the functions named in `without`. Raises OSError if it fails."""
    found = compiler()
    if found is None:
        raise OSError("no C compiler")
    directory.mkdir(parents=True, exist_ok=True)
    library = directory / "libnvidia-ml.so.1"
    flags = ["-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1"]
    missing = [f"-DWITHOUT_{name}" for name in without]
    done = subprocess.run(
        [found, *flags, *missing, "-o", str(library), str(SOURCE)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    if done.returncode:
        raise OSError(done.stderr)
    return library


class StubFile:
    """The answers of the stand-in; a change is seen whole by the next call."""

    def __init__(self, path: Path, **values: object) -> None:
        self.path = path
        self._values: dict[str, object] = dict(values)
        self._write()

    def set(self, values: dict[str, object]) -> None:
        """Changes answers; None takes a line out."""
        self._values |= values
        self._write()

    def _write(self) -> None:
        lines = [f"{key} {value}\n" for key, value in self._values.items() if value is not None]
        fresh = self.path.with_suffix(".new")
        fresh.write_text("".join(lines))
        fresh.replace(self.path)


def environment(library: Path, file: Path) -> dict[str, str]:
    """The environment in which a process finds the stand-in instead of a driver."""
    return {**os.environ, "LD_LIBRARY_PATH": str(library.parent), "NVML_STUB_FILE": str(file)}


if __name__ == "__main__":
    built = build(Path(sys.argv[1]))
    sys.stdout.write(f"LD_LIBRARY_PATH={built.parent} NVML_STUB_FILE={built.with_name('gpus')}\n")
