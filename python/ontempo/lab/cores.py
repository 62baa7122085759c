"""Cells on the cores of this machine: one thread each, while the simulator runs outside Python."""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Any

import polars as pl

from ontempo.lab.cells import Planned
from ontempo.lab.engine import Engine, Stop, StoppedError
from ontempo.lab.errors import LabError, UnfitEnvironmentError
from ontempo.lab.store import Store

LOOK_EVERY_S = 0.1
"""How often Ctrl-C is checked for. polars' signal handler restarts a system call that the signal
interrupts, so a wait without a limit would never see it."""


class CoreRunner:
    """Runs up to `jobs` cells at a time."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs

    def slots(self) -> int:
        """How many cells run at a time."""
        return self.jobs

    def here(self) -> int:
        """How many cells run at a time on this machine."""
        return self.jobs

    def words(self) -> str:
        """The place, after "running 12"."""
        return f"on {self.jobs} core{'s' if self.jobs > 1 else ''}"

    def run(
        self,
        engine: Engine,
        store: Store,
        cells: Sequence[Planned],
        finished: Callable[[Planned], None],
    ) -> None:
        """Run every cell."""
        _Run(engine, store, finished).go(cells, self.jobs)


def _next(ended: "SimpleQueue[Future[None]]") -> "Future[None]":
    """The next that has ended; looks up now and then, so that Ctrl-C is noticed."""
    while True:
        try:
            return ended.get(timeout=LOOK_EVERY_S)
        except Empty:
            continue


class _Run:
    """One execution: the threads, and how they are stopped."""

    def __init__(self, engine: Engine, store: Store, finished: Callable[[Planned], None]) -> None:
        self.engine = engine
        self.store = store
        self.finished = finished
        self.stopping = threading.Event()
        self.running: set[Stop] = set()
        self.lock = threading.Lock()

    def go(self, cells: Sequence[Planned], jobs: int) -> None:
        """Run the cells, the first ones first."""
        with ThreadPoolExecutor(jobs, thread_name_prefix="cell") as pool:
            # Not `wait`, which looks at every future each time: of 10,000 cells half a core.
            ended: SimpleQueue[Future[None]] = SimpleQueue()
            futures = {pool.submit(self._work, planned): planned for planned in cells}
            try:
                for future in futures:
                    future.add_done_callback(ended.put)
                for _ in futures:
                    future = _next(ended)
                    self._finish(futures[future], future)
            except BaseException:
                self._stop(pool)
                raise

    def _work(self, planned: Planned) -> None:
        stop = self.engine.stop()
        with self.lock:
            self.running.add(stop)
        try:
            if self.stopping.is_set():
                raise StoppedError
            tables = self.engine.run(planned.scenario, planned.cell.seed, stop)
            self._keep(planned.key, tables, planned.about(self.engine.fingerprint()))
        finally:
            with self.lock:
                self.running.discard(stop)

    def _keep(self, key: str, tables: Mapping[str, pl.DataFrame], about: Mapping[str, Any]) -> None:
        """Store a finished cell, even if Ctrl-C is pressed meanwhile.

        polars raises `KeyboardInterrupt` in every thread that is inside it at that moment, so
        the interrupted write is repeated before the exception goes on to the study.
        """
        try:
            self.store.keep(key, tables, about)
        except KeyboardInterrupt:
            self.store.keep(key, tables, about)
            raise

    def _finish(self, planned: Planned, future: "Future[None]") -> None:
        try:
            future.result()
        except (LabError, KeyboardInterrupt):
            raise
        except Exception as error:
            raise UnfitEnvironmentError(f"{planned.cell}: the run failed: {error}") from error
        self.finished(planned)

    def _stop(self, pool: ThreadPoolExecutor) -> None:
        self.stopping.set()
        with self.lock:
            for stop in self.running:
                stop.cancel()
        pool.shutdown(wait=True, cancel_futures=True)
