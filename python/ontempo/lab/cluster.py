"""Cells on a Dask cluster: batches as tasks; results go into our own store.

A task carries the scenario's canonical form, so that a worker needs the package and no file. The
scheduler gives a dead worker's tasks to another one; a batch that kills several workers is taken
apart, and a cell that does so alone is named.
"""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from ontempo.lab.cells import Planned
from ontempo.lab.engine import Engine
from ontempo.lab.errors import BadInputError, LabError, UnfitEnvironmentError
from ontempo.lab.store import Store, pack

ANSWER_WITHIN_S = 10
"""How long a scheduler may take to answer."""

LOOK_EVERY_S = 0.5
"""How often Ctrl-C and the loss of the scheduler are checked for."""

MAX_BATCH = 16
"""Cells in a task: more save little, and are lost together where a worker dies."""

BATCHES_A_SLOT = 4
"""Fewer would leave workers idle while the last batches run."""

ADDRESS = re.compile(r"((tcp|tls|ucx|ws|wss)://)?(\[[0-9a-fA-F:]+\]|[^/:\s]+):\d+")
"""A scheduler's address: protocol, host and port."""

INSTALL = "--dask needs the package distributed: pip install 'ontempo[lab,dask]'"


@dataclass(frozen=True)
class Job:
    """A cell as it is sent to a worker."""

    key: str
    canonical: str
    seed: int
    about: dict[str, Any]


class OtherEngineError(Exception):
    """A worker's simulator differs from this machine's."""


def run_batch(engine: Engine, fingerprint: str, jobs: Sequence[Job]) -> list[tuple[str, bytes]]:
    """Runs on a worker: run each cell and return it in the store's file format."""
    if engine.fingerprint() != fingerprint:
        raise OtherEngineError(
            f"a worker's simulator is {engine.fingerprint()[:12]}, this machine's"
            f" {fingerprint[:12]}: install the same ontempo on both"
        )
    done = []
    for job in jobs:
        tables = engine.run(engine.revive(job.canonical), job.seed, engine.stop())
        done.append((job.key, pack(job.key, tables, job.about)))
    return done


class DaskRunner:
    """Runs cells on the cluster of a scheduler, or on local worker processes.

    `address` is a scheduler's, or ``local``. `notify` receives notices for the user.
    """

    def __init__(
        self, address: str, jobs: int, notify: Callable[[str], None] = lambda _text: None
    ) -> None:
        self.address = address
        self.jobs = jobs
        self.notify = notify
        self.client: Any = None
        self.cluster: Any = None

    def slots(self) -> int:
        """How many cells run at a time now; workers come and go."""
        if self.client is None:
            return self.jobs
        threads: dict[str, int] = self.client.nthreads()
        return max(1, sum(threads.values()))

    def here(self) -> int:
        """How many cells run at a time on this machine: none of a cluster's."""
        return self.jobs if self.address == "local" else 0

    def words(self) -> str:
        """The place, after "running 12"."""
        where = "worker processes" if self.address == "local" else f"the cluster at {self.address}"
        return f"on {where} with {self.slots()} slots"

    @contextmanager
    def connected(self) -> Iterator["DaskRunner"]:
        """Keep the connection open; several studies can share it."""
        if self.address != "local" and not ADDRESS.fullmatch(self.address):
            raise BadInputError(
                f"--dask {self.address}: is no address; write one such as tcp://host:8786, or local"
            )
        distributed = _distributed()
        # We report dead workers ourselves.
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        target: Any = self.address
        if self.address == "local":
            self.cluster = target = distributed.LocalCluster(
                n_workers=self.jobs,
                threads_per_worker=1,
                dashboard_address=None,
                silence_logs=logging.CRITICAL,
            )
        try:
            self.client = self._connect(distributed.Client, target)
            if not self.client.nthreads():
                self.notify(f"{self.address} has no workers yet; cells run as soon as some come")
            yield self
        finally:
            for part in (self.client, self.cluster):
                if part is not None:
                    part.close()
            self.client = self.cluster = None

    def _connect(self, client: Any, target: Any) -> Any:
        try:
            return client(target, timeout=ANSWER_WITHIN_S, set_as_default=False)
        except OSError as error:
            raise UnfitEnvironmentError(
                f"--dask {self.address}: no scheduler answers within {ANSWER_WITHIN_S} s; start one"
                " with `dask scheduler` and `dask worker ADDRESS`, or use --dask local"
            ) from error

    def run(
        self,
        engine: Engine,
        store: Store,
        cells: Sequence[Planned],
        finished: Callable[[Planned], None],
    ) -> None:
        """Run every cell; connects first if there is no connection."""
        if self.client is None:
            with self.connected():
                _Gathering(self.client, engine, store, finished).go(cells, self.slots())
        else:
            _Gathering(self.client, engine, store, finished).go(cells, self.slots())


class _Gathering:
    """One execution: batches sent and results received."""

    def __init__(
        self, client: Any, engine: Engine, store: Store, finished: Callable[[Planned], None]
    ) -> None:
        self.client = client
        self.engine = engine
        self.fingerprint = engine.fingerprint()
        self.store = store
        self.finished = finished
        self.waiting: dict[Any, Sequence[Planned]] = {}

    def go(self, cells: Sequence[Planned], slots: int) -> None:
        """Send all batches, then store results in the order in which they arrive."""
        size = max(1, min(MAX_BATCH, len(cells) // (BATCHES_A_SLOT * slots)))
        try:
            for start in range(0, len(cells), size):
                self._send(cells[start : start + size])
            while self.waiting:
                for future in self._done():
                    self._take(future, self.waiting.pop(future))
        finally:
            if self.waiting and self.client.status == "running":
                self.client.cancel(list(self.waiting), force=True)

    def _send(self, batch: Sequence[Planned]) -> None:
        jobs = [
            Job(
                one.key,
                one.scenario.canonical(),
                one.cell.seed,
                one.about(self.fingerprint),
            )
            for one in batch
        ]
        future = self.client.submit(run_batch, self.engine, self.fingerprint, jobs, pure=False)
        self.waiting[future] = batch

    def _done(self) -> list[Any]:
        try:
            with self.client.as_current():
                return list(
                    _distributed().wait(list(self.waiting), LOOK_EVERY_S, "FIRST_COMPLETED").done
                )
        except TimeoutError:
            if self.client.status != "running":
                raise UnfitEnvironmentError(
                    "the scheduler is gone; finished cells are kept, the same command goes on"
                ) from None
            return []

    def _take(self, future: Any, batch: Sequence[Planned]) -> None:
        distributed = _distributed()
        try:
            packed = dict(future.result())
        except distributed.KilledWorker as error:
            self._killed(batch, error)
            return
        except (LabError, KeyboardInterrupt):
            raise
        except OtherEngineError as error:
            raise UnfitEnvironmentError(str(error)) from error
        except (distributed.CancelledError, OSError) as error:
            raise UnfitEnvironmentError(
                f"the cluster gave up ({error}); finished cells are kept, the same command goes on"
            ) from error
        except ModuleNotFoundError as error:
            raise UnfitEnvironmentError(
                f"a worker lacks {error.name}: pip install 'ontempo[lab,dask]' there"
            ) from error
        except Exception as error:
            one = batch[0].cell if len(batch) == 1 else f"one of {len(batch)} cells"
            raise UnfitEnvironmentError(f"{one}: the run failed: {error}") from error
        for planned in batch:
            self.store.keep_packed(planned.key, packed[planned.key])
            self.finished(planned)

    def _killed(self, batch: Sequence[Planned], error: Exception) -> None:
        if len(batch) == 1:
            raise UnfitEnvironmentError(
                f"{batch[0].cell}: every worker that ran it died; too little memory?"
            ) from error
        for planned in batch:
            self._send([planned])


def _distributed() -> Any:
    """The package `distributed`: optional, and without type hints."""
    try:
        return import_module("distributed")
    except ModuleNotFoundError as error:
        raise UnfitEnvironmentError(INSTALL) from error
