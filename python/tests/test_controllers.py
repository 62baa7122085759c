"""Congestion controllers written in Python: results, determinism, and what bad ones are told."""

import _thread
import multiprocessing
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
from examples.controller import cost

import ontempo as ot
from ontempo.congestion import Ack, Loss, Snapshot, Start, Timeout

TEXT = """\
duration = "20 s"
[topology]
kind = "dumbbell"
access = { rate = "20 Mbit/s", delay = "5 ms" }
bottleneck = { rate = "4 Mbit/s", delay = "15 ms", queue = { kind = "red", limit = "30 packets", \
min-th = "5 packets", ecn = true }, outages = [{ at = "8 s", for = "1 s" }] }
[flows.bulk]
count = 2
application = { kind = "ftp" }
transport = { kind = "tcp", congestion = "reno" }
[flows.marked]
application = { kind = "ftp" }
transport = { kind = "tcp", congestion = "reno", ecn = true }
[flows.web]
application = { kind = "http", think = "800 ms" }
transport = { kind = "tcp", congestion = "reno" }
[measure]
sample-every = "100 ms"
events = true
"""

FILM = """\
duration = "8 s"
[topology]
kind = "dumbbell"
access = { rate = "20 Mbit/s", delay = "5 ms" }
bottleneck = { rate = "4 Mbit/s", delay = "15 ms", queue = { kind = "drop-tail", \
limit = "12 packets" } }
[flows.film]
application = { kind = "media", generate = { rate = "3 Mbit/s", duration = "6 s" } }
transport = { kind = "ontempo", congestion = "reno" }
[flows.bulk]
application = { kind = "ftp" }
transport = { kind = "tcp", congestion = "reno" }
"""


@dataclass
class Reno(ot.CongestionController):
    """Reno, written as the built-in one is."""

    packets: bool = False
    reductions: int = 0

    def on_ack(self, ack: Ack) -> None:
        if ack.in_recovery or ack.packets <= 0 or not ack.window_limited:
            return
        steps = ack.packets if self.packets else 1.0
        self.cwnd += steps if self.cwnd < self.ssthresh else steps / self.cwnd

    def on_loss(self, _loss: Loss) -> None:
        self.ssthresh = max(self.cwnd * 0.5, 2.0)
        self.cwnd = self.ssthresh
        self.reductions += 1

    def on_timeout(self, timeout: Timeout) -> None:
        super().on_timeout(timeout)
        self.reductions += not timeout.repeated


MINE = {"mine": Reno}
TABLE = 'congestion={ kind = "mine", packets = true }'
EVERY = [f"flows.{group}.transport.{TABLE}" for group in ("bulk", "marked", "web")]


def tables(result: ot.Result) -> dict[str, pl.DataFrame]:
    """Every table; that of flows without the controllers' names."""
    return {
        name: pl.DataFrame(table).drop("congestion", strict=False)
        for name, table in result.tables.items()
    }


def assert_equal(left: ot.Result, right: ot.Result) -> None:
    ones, others = tables(left), tables(right)
    for name, one in ones.items():
        assert one.equals(others[name]), name


def with_class(class_: type[ot.CongestionController], seed: int = 1) -> ot.Result:
    return ot.run(bulk_of(), seed, controllers={"mine": class_})


def with_parameters(class_: type[ot.CongestionController], parameters: str) -> ot.Result:
    return ot.run(bulk_of(f'{{ kind = "mine", {parameters} }}'), controllers={"mine": class_})


# Results.


def test_reno_in_python_gives_the_tables_of_reno_to_the_byte() -> None:
    own = ot.run(ot.parse(TEXT, overrides=EVERY, controllers=MINE), controllers=MINE)
    built_in = ot.run(ot.parse(TEXT))
    assert_equal(own, built_in)
    flows = pl.DataFrame(own.flows)
    assert flows["congestion"].unique().to_list() == ["mine"]
    # Losses, marks, timeouts and idle times were among the events that it was told.
    assert flows["reductions"].min() > 0  # type: ignore[operator]
    assert flows["timeouts"].sum() > 0


def test_a_film_over_ontempo_is_the_same_over_reno_in_python() -> None:
    over = ["flows.film.transport.congestion=mine"]
    own = ot.run(ot.parse(FILM, overrides=over, controllers=MINE), controllers=MINE)
    built_in = ot.run(ot.parse(FILM))
    assert_equal(own, built_in)
    film = pl.DataFrame(own.flows).filter(pl.col("group") == "film")
    assert film["congestion"].to_list() == ["mine"]
    tiny = ot.parse(FILM, overrides=over, controllers=MINE)
    assert not tables(ot.run(tiny, controllers={"mine": Tiny}))["media"].equals(
        tables(own)["media"]
    )


class Tiny(Reno):
    """One packet in a round trip, if that."""

    def on_ack(self, _ack: Ack) -> None:
        self.cwnd = 0.1


def test_the_same_seed_gives_the_same_tables_also_in_threads_and_processes() -> None:
    alone = [with_class(Reno, seed=seed) for seed in (1, 2)]
    together: list[ot.Result | None] = [None, None]

    def work(place: int) -> None:
        together[place] = with_class(Reno, seed=place + 1)

    workers = [threading.Thread(target=work, args=(place,)) for place in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for one, other in zip(alone, together, strict=True):
        assert other is not None
        assert_equal(one, other)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(goodput, Reno, 1).result() == goodput(Reno, 1)


def goodput(class_: type[ot.CongestionController], seed: int) -> float:
    return float(pl.DataFrame(with_class(class_, seed=seed).flows)["goodput_bps"].sum())


def test_a_pacing_rate_is_obeyed() -> None:
    class Paced(Reno):
        def on_ack(self, _ack: Ack) -> None:
            self.cwnd = 1000.0
            self.pacing_rate_bps = 800_000

    paced = TEXT.replace('"reno" }', '"reno", pacing = "controller" }', 1)
    scenario = ot.parse(
        paced, overrides=["flows.bulk.transport.congestion=mine"], controllers=["mine"]
    )
    result = ot.run(scenario, controllers={"mine": Paced})
    flows = pl.DataFrame(result.flows).filter(pl.col("group") == "bulk")
    assert flows["goodput_bps"].max() < 800_000  # type: ignore[operator]
    assert flows["goodput_bps"].min() > 600_000  # type: ignore[operator]


def test_each_flow_has_an_instance_that_is_told_what_it_starts_with() -> None:
    starts: list[Start] = []

    class Watching(Reno):
        def on_start(self) -> None:
            super().on_start()
            starts.append(self.start)

    with_class(Watching)
    assert [start.flow for start in starts] == ["bulk.0", "bulk.1"]
    assert starts[0].packet_bytes == 1000
    assert starts[0].initial_window == 10
    assert starts[0].seed != starts[1].seed
    first = starts.copy()
    starts.clear()
    with_class(Watching)
    assert starts == first


def test_the_defaults_are_renos() -> None:
    controller = Reno()
    controller.start = Start(initial_window=4.0)
    controller.on_start()
    assert controller.cwnd == 4.0
    controller.cwnd = 40.0
    controller.on_timeout(Timeout(1.0))
    assert (controller.cwnd, controller.ssthresh) == (1.0, 20.0)
    controller.on_timeout(Timeout(2.0, repeated=True))
    assert controller.ssthresh == 20.0
    controller.on_spurious_timeout(Snapshot(40.0))
    assert controller.cwnd == 40.0
    controller.on_idle_decay(2)
    assert (controller.cwnd, controller.ssthresh) == (10.0, float("inf"))
    controller.on_idle_restart()
    assert controller.cwnd == 4.0


def test_the_benchmark_compares_equal_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cost, "ROUNDS", 1)
    monkeypatch.setattr(cost, "TEXT", cost.TEXT.replace('"100 s"', '"2 s"'))
    cost.main()
    assert re.search(r"us a packet, [-\d.]+ us an ACK", capsys.readouterr().out)


# Controllers that fail.


def line_of(mark: str) -> int:
    lines = Path(__file__).read_text("utf-8").splitlines()
    (line,) = (number for number, text in enumerate(lines, 1) if text.endswith(f"# {mark}"))
    return line


def assert_told(error: ot.ControllerError, mark: str | None = None) -> None:
    """The error names file, line (of the mark), flow and controller."""
    line = line_of(mark) if mark else r"\d+"
    place = rf"{__file__}:{line}: flow bulk\.[01], congestion controller `mine`: \w+\."
    assert re.match(place, str(error)), error


def failing(
    body: Callable[[Reno], object], method: str = "on_ack"
) -> type[ot.CongestionController]:
    """A class whose method ends in `body`."""

    def act(self: Reno, *_: object) -> object:  # of act
        return body(self)

    return type("Failing", (Reno,), {method: act})


def test_an_exception_is_the_cause_of_an_error_that_names_its_place() -> None:
    class Dividing(Reno):
        def on_ack(self, ack: Ack) -> None:
            self.cwnd = 1 / (ack.packets - ack.packets)  # divides

    with pytest.raises(ot.ControllerError) as told:
        with_class(Dividing)
    assert_told(told.value, "divides")
    assert "Dividing.on_ack raised ZeroDivisionError" in str(told.value)
    cause = told.value.__cause__
    assert isinstance(cause, ZeroDivisionError)
    assert cause.__traceback__ is not None
    with_class(Reno)


def test_an_error_in_a_library_names_the_line_that_called_it() -> None:
    class Calling(Reno):
        def on_loss(self, _loss: Loss) -> None:
            Path("/nonexistent").read_text()  # calls

    with pytest.raises(ot.ControllerError, match="on_loss raised FileNotFoundError") as told:
        with_class(Calling)
    assert_told(told.value, "calls")


VALUES: list[tuple[str, object, str]] = [
    ("cwnd", float("nan"), "nan; needed: packets above 0"),
    ("cwnd", -1.0, "-1.0; needed: packets above 0"),
    ("cwnd", 0, "0; needed"),
    ("cwnd", float("inf"), "inf; needed"),
    ("cwnd", "10", "'10'; needed"),
    ("cwnd", None, "None; needed"),
    ("ssthresh", float("nan"), "nan; needed: packets, at least 0"),
    ("pacing_rate_bps", 0.5, "0.5; needed: bit/s"),
    ("pacing_rate_bps", "1 Mbit/s", "'1 Mbit/s'; needed"),
    ("burst", 1.5, "1.5; needed: a whole number"),
    ("burst", 0, "0; needed"),
    ("reductions", -1, "-1; needed: a whole number that only grows"),
    ("early_responses", 1 << 70, "needed: a whole number"),
]


@pytest.mark.parametrize(("name", "value", "what"), VALUES)
def test_a_value_that_will_not_do_is_named(name: str, value: object, what: str) -> None:
    with pytest.raises(ot.ControllerError) as told:
        with_class(failing(lambda self: setattr(self, name, value)))
    message = str(told.value)
    assert_told(told.value, "of act")
    assert f"Failing.on_ack was called, then self.{name} is " in message
    assert what in message


def nothing(_: object) -> None:
    pass


def raise_(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("class_", "what"),
    [
        (failing(lambda _: 3.0), "on_ack returned 3.0; it returns nothing"),
        (failing(lambda _: None, "on_start"), "on_start was called, then there is no self.cwnd"),
        (failing(lambda _: raise_(SystemExit(3))), "on_ack raised SystemExit: 3"),
        (failing(lambda _: raise_(KeyboardInterrupt())), "on_ack raised KeyboardInterrupt"),
        (failing(lambda _: raise_(RuntimeError("so")), "on_start"), "on_start raised RuntimeError"),
        (failing(lambda _: raise_(RuntimeError("so")), "__init__"), "__init__ raised RuntimeError"),
        (type("Few", (Reno,), {"on_ack": lambda _: None}), "on_ack raised TypeError"),
        (
            type(
                "Property",
                (Reno,),
                {"on_start": nothing, "cwnd": property(lambda self: self.nothing)},
            ),
            "raised AttributeError",
        ),
    ],
)
def test_a_method_that_fails_is_named(class_: type[ot.CongestionController], what: str) -> None:
    with pytest.raises(ot.ControllerError) as told:
        with_class(class_)
    assert what in str(told.value)
    assert_told(told.value)


def test_a_controller_of_a_film_fails_as_another() -> None:
    scenario = ot.parse(
        FILM, overrides=["flows.film.transport.congestion=mine"], controllers=["mine"]
    )
    with pytest.raises(ot.ControllerError, match=r"flow film\.0.* raised ValueError: so"):
        ot.run(scenario, controllers={"mine": failing(lambda _: raise_(ValueError("so")))})


def test_parameters_that_the_class_lacks_are_told() -> None:
    assert with_parameters(Reno, "packets = true").seed == 1
    with pytest.raises(ot.ControllerError, match=r"__init__ raised TypeError.*gain"):
        with_parameters(Reno, "gain = 2")
    with pytest.raises(ot.ControllerError, match="the parameter a_b is given twice"):
        with_parameters(Reno, "a-b = 1, a_b = 2")
    with pytest.raises(ot.ScenarioError, match=r"congestion\.gain: a parameter is"):
        with_parameters(Reno, "gain = nan")


# Names and classes.


def bulk_of(name: str = "mine", controllers: object = ("mine",)) -> ot.Scenario:
    override = f"flows.bulk.transport.congestion={name}"
    return ot.parse(TEXT, overrides=[override], controllers=controllers)  # type: ignore[arg-type]


def test_a_name_is_known_only_where_it_is_given() -> None:
    with pytest.raises(ot.ScenarioError, match=r"transport\.congestion: unknown name \"mine\""):
        bulk_of(controllers=())
    with pytest.raises(ot.ScenarioError, match="did you mean `mine`"):
        bulk_of("mien")
    with pytest.raises(ot.ScenarioError, match=r"flows\.bulk\.transport\.congestion: .*no class"):
        ot.run(bulk_of())
    with pytest.raises(ValueError, match="no flow has the congestion controller `other`"):
        ot.run(bulk_of(), controllers={"mine": Reno, "other": Reno})
    with pytest.raises(ValueError, match="no flow has"):
        ot.run(ot.parse(TEXT), controllers=MINE)


def test_overrides_keep_the_names_and_the_canonical_form_has_them() -> None:
    scenario = ot.parse(TEXT, controllers=MINE).with_overrides(EVERY)
    assert '"congestion":{"kind":"mine","packets":true}' in scenario.canonical()
    assert "TCP with mine" in scenario.explain()


@pytest.mark.parametrize("name", ["", "1st", "my law", "a.b", "reno", "kernel", "x" * 65])
def test_a_bad_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"congestion controller"):
        bulk_of(controllers=[name])
    with pytest.raises(ValueError, match=r"congestion controller"):
        ot.run(bulk_of(), controllers={"mine": Reno, name: Reno})


class Lacking(ot.CongestionController):
    """Without a method for losses."""

    def on_ack(self, ack: Ack) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (Reno(), "a class is needed, not a value of type Reno"),
        (object, "no subclass of ontempo.CongestionController"),
        (Lacking, "Lacking lacks the methods `on_loss`"),
        (None, "a class is needed"),
    ],
)
def test_what_is_no_class_of_a_controller_is_refused(value: object, what: str) -> None:
    with pytest.raises(TypeError, match=what):
        ot.run(bulk_of(), controllers={"mine": value})  # type: ignore[dict-item]


def test_controllers_are_a_dictionary_and_names_a_list() -> None:
    with pytest.raises(TypeError, match="controllers"):
        ot.run(bulk_of(), controllers=[Reno])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match='write \\["mine"\\], not "mine"'):
        bulk_of(controllers="mine")


# Runs that are stopped.


class Endless(Reno):
    """Never returns."""

    def on_ack(self, _ack: Ack) -> None:
        while True:
            pass


@pytest.mark.parametrize("class_", [Reno, Endless])
def test_ctrl_c_ends_a_run_also_inside_of_a_method(class_: type[Reno]) -> None:
    before = threading.active_count()
    scenario = bulk_of().with_overrides(['duration="1000000 s"'])
    threading.Timer(0.3, _thread.interrupt_main).start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        ot.run(scenario, controllers={"mine": class_}, any_size=True)
    assert time.monotonic() - begun < 5
    with_class(Reno)
    assert threading.active_count() <= before + 1


@pytest.mark.parametrize("class_", [Reno, Endless])
def test_a_token_ends_a_run_also_inside_of_a_method(class_: type[Reno]) -> None:
    scenario = bulk_of().with_overrides(['duration="1000000 s"'])
    token = ot.CancelToken()
    threading.Timer(0.3, token.cancel).start()
    with pytest.raises(ot.Cancelled):
        ot.run(scenario, cancel=token, controllers={"mine": class_}, any_size=True)
    with_class(Reno)
