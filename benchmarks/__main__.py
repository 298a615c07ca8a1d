"""Runs the benchmarks of this folder, or those named on the command line, and prints one table.

A benchmark is a module `bench_NAME.py` with a function `run() -> Iterable[Result]`. One that has a function `command` as
well takes the rest of the command line when it is named first: `python -m benchmarks law --help`.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from collections.abc import Iterator

import benchmarks
from benchmarks.result import Result

PREFIX = "bench_"


def names() -> list[str]:
    """The benchmarks that there are."""
    modules = (module.name for module in pkgutil.iter_modules(benchmarks.__path__))
    return [name.removeprefix(PREFIX) for name in modules if name.startswith(PREFIX)]


def run(name: str) -> Iterator[Result]:
    """The figures of one benchmark, as they come."""
    yield from importlib.import_module(f"benchmarks.{PREFIX}{name}").run()


def line(result: Result) -> str:
    """A figure for people."""
    verdict = {True: "reached", False: "MISSED", None: ""}[result.met]
    return f"{result.name:<64} {result.value:>12,.4g} {result.unit:<10} {result.bar:<28} {verdict}".rstrip()


def main(arguments: list[str]) -> int:
    """Exit code 1 when a figure missed its bar."""
    if len(arguments) > 1 and arguments[0] in names():
        module = importlib.import_module(f"benchmarks.{PREFIX}{arguments[0]}")
        if hasattr(module, "command") and arguments[1] != "--json":
            return int(module.command(arguments[1:]))
    as_json = "--json" in arguments
    wanted = [name for name in arguments if not name.startswith("-")] or names()
    if unknown := set(wanted) - set(names()):
        print(
            f"no benchmark named {', '.join(sorted(unknown))}; there are {', '.join(names()) or 'none'}",
            file=sys.stderr,
        )
        return 2
    results = []
    for name in wanted:
        for result in run(name):
            results.append(result)
            if not as_json:
                print(line(result), flush=True)
    if as_json:
        print(
            json.dumps(
                [{field: getattr(result, field) for field in result.__slots__} for result in results],
                indent=2,
            )
        )
    return int(any(result.met is False for result in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
