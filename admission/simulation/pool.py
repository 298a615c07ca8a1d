"""Many independent runs on the machine's cores: results in the order of the tasks, and nothing left running afterwards."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_END_S = 5.0


class WorkerLostError(RuntimeError):
    """A worker process ended without a result, as when the machine's memory ran out."""


@dataclass(slots=True)
class _Worker:
    process: SpawnProcess
    pipe: Connection
    task: int | None = None


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_all(
    work: Callable[[T], R],
    tasks: Sequence[T],
    *,
    processes: int | None = None,
    done: Callable[[], None] = lambda: None,
) -> list[R]:
    """Apply `work` to every task; `done` is called here after each. With one process it all happens in this one.

    Args:
        work: a function that can be imported by name.
        tasks: small values that can be pickled.
        processes: at most so many; None: as many as there are cores.
        done: told of each result, for a progress bar.

    Raises:
        WorkerLostError: a worker died.
        Exception: whatever `work` raised first; the other tasks are given up.
    """
    count = min(len(tasks), processes or cores())
    if count <= 1:
        return [_noted(work(task), done) for task in tasks]
    results: dict[int, R] = {}
    with _workers(work, count) as workers:
        waiting = iter(range(len(tasks)))
        for worker in workers:
            _give(worker, waiting, tasks)
        while len(results) < len(tasks):
            for worker in _ready(workers):
                no, result = _result(worker)
                results[no] = _noted(result, done)
                _give(worker, waiting, tasks)
    return [results[no] for no in range(len(tasks))]


def _noted(result: R, done: Callable[[], None]) -> R:
    done()
    return result


@contextlib.contextmanager
def _workers(work: Callable[[Any], Any], count: int) -> Iterator[list[_Worker]]:
    """Worker processes, killed at the end whatever happens: they hold nothing that needs tidying up."""
    workers: list[_Worker] = []
    try:
        with _without_interrupts():
            workers.extend(_start(work) for _ in range(count))
        yield workers
    finally:
        with _without_interrupts():
            for worker in workers:
                worker.process.kill()
                worker.pipe.close()
            for worker in workers:
                worker.process.join(_END_S)


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Hold ctrl-c back. Processes started meanwhile inherit it for good: it is ours to stop them, in order."""
    resource_tracker.ensure_running()  # which would let interrupts in again if it were started later
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(work: Callable[[Any], Any]) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(work, theirs), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _serve(work: Callable[[Any], Any], pipe: Connection) -> None:
    """The worker's loop, until its pipe closes. It ends with its parent, also amid a run."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with contextlib.suppress(EOFError, OSError):
        while True:
            pipe.send(_outcome(work, pipe.recv()))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _outcome(work: Callable[[Any], Any], task: Any) -> tuple[bool, Any]:
    try:
        return True, work(task)
    except Exception as error:  # noqa: BLE001 - raised again in the parent
        return False, error


def _give(worker: _Worker, waiting: Iterator[int], tasks: Sequence[Any]) -> None:
    worker.task = next(waiting, None)
    if worker.task is not None:
        try:
            worker.pipe.send(tasks[worker.task])
        except OSError as error:
            raise _lost(worker) from error


def _ready(workers: Sequence[_Worker]) -> list[_Worker]:
    """Those that have answered or died; waits for one."""
    busy = {worker.pipe: worker for worker in workers if worker.task is not None}
    return [busy[pipe] for pipe in wait(list(busy)) if isinstance(pipe, Connection)]


def _result(worker: _Worker) -> tuple[int, Any]:
    try:
        fine, result = worker.pipe.recv()
    except (EOFError, OSError) as error:
        raise _lost(worker) from error
    if not fine:
        raise result
    assert worker.task is not None  # noqa: S101 - narrows a type
    return worker.task, result


def _lost(worker: _Worker) -> WorkerLostError:
    worker.process.join(_END_S)
    return WorkerLostError(f"a worker process ended with {worker.process.exitcode}: was there enough memory?")
