"""Sweeps: the study file, its cells, its stopping rule, its results."""

import errno
import fcntl
import json
import math
import re
from pathlib import Path
from textwrap import dedent

import polars as pl
import pytest
from fake import FakeEngine
from small import TEXT
from typer.testing import CliRunner, Result

from ontempo.lab import main
from ontempo.lab.batches import cut, lag_one, nanoseconds
from ontempo.lab.engine import NativeEngine
from ontempo.lab.errors import BAD_INPUT, ENVIRONMENT, BadInputError
from ontempo.lab.folder import LOCK
from ontempo.lab.statistics import mean_interval
from ontempo.lab.store import Store
from ontempo.lab.study import Study
from ontempo.lab.sweep import points_of, seed_of, sweep
from ontempo.lab.sweep_file import SweepFile, read_sweep

runner = CliRunner()

COLUMNS = """
[columns]
videos = '''AVG(goodput_bps) FROM flows WHERE "group" = 'video' '''
"""

AXES = """
[axes]
flows.ftp.count = [1, 3]
"flows.video.transport.congestion" = ["pert", "reno"]
"""


def write(folder: Path, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "small.toml").write_text(TEXT)
    path = folder / "study.toml"
    path.write_text('scenario = "small.toml"\n' + dedent(text))
    return path


def read(folder: Path, text: str) -> SweepFile:
    return read_sweep(write(folder, text))


def run(path: Path, *more: str) -> Result:
    return runner.invoke(main.app, ["sweep", str(path), "--out", str(path.parent / "out"), *more])


# The file.


@pytest.mark.parametrize(
    ("written", "values"),
    [
        ("[1, 2, 5]", [1, 2, 5]),
        ("{ from = 10, to = 40, step = 10 }", [10, 20, 30, 40]),
        ("{ from = 0.1, to = 0.3, step = 0.1 }", [0.1, 0.2, 0.3]),
        ("{ from = 1, to = 1000, points = 4, scale = 'log' }", [1, 10, 100, 1000]),
        ("{ from = 0, to = 1, points = 3 }", [0.0, 0.5, 1.0]),
        ("{ from = 5, to = 15, step = 5, unit = 'ms' }", ["5 ms", "10 ms", "15 ms"]),
        ("{ from = 1048576, to = 1048577, step = 1, unit = 'B' }", ["1048576 B", "1048577 B"]),
        ("{ from = 0.5, to = 0.7, step = 0.1, unit = 's' }", ["0.5 s", "0.6 s", "0.7 s"]),
        ("{ from = 1e-7, to = 2e-7, points = 2, unit = 's' }", ["0.0000001 s", "0.0000002 s"]),
        ("{ from = 1e16, to = 1e16, step = 1.0, unit = 'B' }", ["10000000000000000 B"]),
        ("{ from = 10000000.5, to = 10000001, step = 0.25 }", [10000000.5, 10000000.75, 10000001]),
        ("{ from = 10000000, to = 10000004, points = 3 }", [10000000, 10000002, 10000004]),
        ("{ from = 1048576, to = 4194304, points = 2, scale = 'log' }", [1048576, 4194304]),
        ("{ from = 0, to = 1, points = 4 }", [0, 0.333333333, 0.666666667, 1]),
        ("{ from = 1, to = 100, points = 5, scale = 'log' }", [1, 3.16227766, 10, 31.6227766, 100]),
    ],
)
def test_an_axis_is_a_list_or_a_range(tmp_path: Path, written: str, values: list[object]) -> None:
    (axis,) = read(tmp_path, f"axes.flows.ftp.count = {written}{COLUMNS}").axes
    assert axis.name == "flows.ftp.count"
    assert [value.label for value in axis.values] == values


def test_values_that_belong_together_make_one_axis(tmp_path: Path) -> None:
    text = """
        [[axes.rtt_ms]]
        label = 50
        set = { topology.access.delay = "5 ms", topology.bottleneck.delay = "15 ms" }
        [[axes.rtt_ms]]
        label = 100
        set = { topology.access.delay = "10 ms", topology.bottleneck.delay = "30 ms" }
    """
    (axis,) = read(tmp_path, dedent(text) + COLUMNS).axes
    assert axis.name == "rtt_ms"
    assert axis.values[1].overrides == (
        'topology.access.delay="10 ms"',
        'topology.bottleneck.delay="30 ms"',
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("seed = 3" + COLUMNS, "seed: no such field; did you mean seeds?"),
        ("axes.flows.ftp.count = []" + COLUMNS, "axes.flows.ftp.count: has no values"),
        ("axes.flows.ftp.count = 3" + COLUMNS, "is neither a list nor a range"),
        ("axes.flows.ftp.count = [2, 2]" + COLUMNS, "2 is listed twice"),
        ("axes.flows.ftp.count = [1, inf]" + COLUMNS, "inf is not a finite number"),
        ("[[axes.x]]\nlabel = nan\nset = {}" + COLUMNS, "nan is not a finite number"),
        ("axes.flows.ftp.count = { from = 9, to = 1, step = 1 }" + COLUMNS, "which is empty"),
        ("axes.flows.ftp.count = { from = 1, to = 9 }" + COLUMNS, "a step or a number of points"),
        ("axes.flows.ftp.count = { from = 1, to = 9, step = 0 }" + COLUMNS, "not a number above 0"),
        ("axes.x = { from = 0, to = inf, step = 5 }" + COLUMNS, "axes.x.to: inf is not a finite"),
        ("axes.x = { from = nan, to = 1, points = 5 }" + COLUMNS, "axes.x.from: nan is not a"),
        ("axes.x = { from = 0, to = 1, step = inf }" + COLUMNS, "axes.x.step: inf is not a"),
        ("axes.x = { from = 0, to = 1, step = 1e-9 }" + COLUMNS, "has 1,000,000,001 values"),
        ("axes.x = { from = 0, to = 1, points = 999999 }" + COLUMNS, "has 999,999 values"),
        ("axes.seed = [1, 2]" + COLUMNS, "a column has this name"),
        (COLUMNS + "seeds = 'COUNT(*) FROM flows'", "columns.seeds: the name is taken"),
        ("axes.seeds = [1, 2]" + COLUMNS, "axes.seeds: a column has this name"),
        (
            COLUMNS + "videos_low = 'COUNT(*) FROM flows'",
            "columns.videos_low: is a limit of column",
        ),
        ("axes.videos_high = [1, 2]" + COLUMNS, "axes.videos_high: is a limit of columns.videos"),
        ("set.flows.ftp.count = 2" + AXES + COLUMNS, "flows.ftp.count is already set in set"),
        ("seeds = 0" + COLUMNS, "seeds: 0 is neither a number"),
        ("seeds = [1, 1]" + COLUMNS, "different seeds"),
        (f"seeds = [1, {2**64}]" + COLUMNS, f"seeds: {2**64} is more than 2^64 - 1"),
        ("seeds = '0..999999999999'" + COLUMNS, "seeds: 0..999999999999 are more than 1,000,000"),
        (f"seeds = {2**64}" + COLUMNS, "are more than 1,000,000"),
        ("", "nothing is computed of the runs"),
        ("columns.late = 3", "columns.late: 3 is not a query"),
        (COLUMNS + "[stop]\ncolumn = 'late'\nrelative = 0.1", "stop.column: 'late' is no column"),
        (COLUMNS + "[stop]\ncolumn = 'videos'", "stop: has no width"),
        (COLUMNS + "[stop]\ncolumn = 'videos'\nrelative = 'wide'", "stop.relative: 'wide' is not"),
        (COLUMNS + "[stop]\ncolumn = 'videos'\nrelative = 0.1\nleast = 1", "stop.least: 1 is not"),
        ("seeds = 4" + COLUMNS + "[stop]\ncolumn = 'videos'\nrelative = 0.1", "leave the number"),
        (COLUMNS + "[interval]\nby = 'day'", "interval.by: 'day' is neither seed nor batch"),
        ("scenario = 3", "this is not TOML"),
    ],
)
def test_a_mistake_is_named_with_file_and_field(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(BadInputError) as raised:
        read(tmp_path, text)
    assert str(raised.value).startswith(str(tmp_path / "study.toml"))
    assert expected in str(raised.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("axes.flows.ftp.cuont = [1]" + COLUMNS, "axes.flows.ftp.cuont: --set"),
        ("axes.flows.ftp.count = [1, -1]" + COLUMNS, "a whole number from 0 is needed"),
        ("set.duration = '0 parsecs'" + COLUMNS, "set: --set duration"),
        ("axes.duration = ['30 s', '30000 ms']" + COLUMNS, "are one and the same"),
        ("axes.flows.ftp.count = { from = 1, to = 90000, step = 1 }\nseeds = 99" + COLUMNS, "more"),
    ],
)
def test_an_axis_that_no_scenario_has_is_found_before_anything_runs(
    tmp_path: Path, text: str, expected: str
) -> None:
    path = write(tmp_path, text)
    result = run(path)
    assert result.exit_code == BAD_INPUT
    assert expected in result.output
    assert str(path) in result.output
    assert not (tmp_path / "out").exists()


def test_a_missing_scenario_and_a_missing_study_are_bad_input(tmp_path: Path) -> None:
    path = write(tmp_path, COLUMNS)
    (tmp_path / "small.toml").unlink()
    assert "scenario: there is no file" in run(path).output
    path.unlink()
    result = run(path)
    assert result.exit_code == BAD_INPUT
    assert "cannot read the study" in result.output


# Its cells.


def test_seeds_follow_from_the_cells_content_alone(tmp_path: Path) -> None:
    engine = NativeEngine()
    file = read(tmp_path / "a", "seeds = 3" + AXES + COLUMNS)
    seeds = {str(p): [seed_of(p, file.seeds, i) for i in range(3)] for p in points_of(file, engine)}
    assert len({seed for each in seeds.values() for seed in each}) == 12

    other = read(
        tmp_path / "b",
        """
        seeds = 2
        title = "another title, another order, one point"
        set.flows.video.transport.congestion = "reno"
        axes.flows.ftp.count = [3]
        """
        + COLUMNS,
    )
    (point,) = points_of(other, engine)
    again = [seed_of(point, other.seeds, i) for i in range(2)]
    assert again == seeds["flows.ftp.count 3, flows.video.transport.congestion reno"][:2]


def test_seeds_may_be_given_and_are_then_the_same_everywhere(tmp_path: Path) -> None:
    file = read(tmp_path, 'seeds = "5..7"' + AXES + COLUMNS)
    for point in points_of(file, NativeEngine()):
        assert [seed_of(point, file.seeds, i) for i in range(3)] == [5, 6, 7]


# Its results.


def test_a_sweep_leaves_parquet_by_cell_and_a_summary(tmp_path: Path) -> None:
    path = write(tmp_path, 'seeds = 3\ntables = ["links"]' + AXES + COLUMNS)
    result = run(path, "--json", "--jobs", "2")
    assert result.exit_code == 0, result.output
    output = json.loads(result.stdout)
    out = tmp_path / "out"
    runs = pl.read_parquet(out / "results" / "**" / "*.parquet", hive_partitioning=True)
    assert runs.height == 12
    assert runs["cell"].n_unique() == 4
    summary = pl.read_parquet(out / "summary.parquet")
    assert summary.columns[:4] == [
        "cell",
        "flows.ftp.count",
        "flows.video.transport.congestion",
        "seeds",
    ]
    for row, cell in zip(summary.iter_rows(named=True), output["cells"], strict=True):
        values = runs.filter(pl.col("cell") == row["cell"])["videos"].to_list()
        interval = mean_interval(values)
        assert row["videos"] == pytest.approx(interval.value)
        assert row["videos_high"] == pytest.approx(interval.high)
        assert cell["columns"]["videos"]["value"] == row["videos"]
        assert cell["axes"]["flows.ftp.count"] == row["flows.ftp.count"]
    links = pl.read_parquet(out / "tables" / "links" / "**" / "*.parquet")
    assert links["seed"].n_unique() == 12

    again = run(path, "--json")
    assert "nothing to run" in again.stderr
    assert json.loads(again.stdout) == output


@pytest.mark.parametrize(("relative", "most", "narrow"), [(0.03, 40, True), (0.0001, 8, False)])
def test_points_run_until_their_intervals_are_narrow_or_seeds_run_out(
    tmp_path: Path, relative: float, most: int, narrow: bool
) -> None:
    text = f"""
        [axes]
        flows.ftp.count = [1, 4]
        flows.video.start = [{{ low = "0 s", high = "20 s" }}]
        [columns]
        ftp = '''AVG(goodput_bps) FROM flows WHERE "group" = 'ftp' '''
        [stop]
        column = "ftp"
        relative = {relative}
        confidence = 0.9
        least = 3
        most = {most}
    """
    file = read(tmp_path, text)
    engine = NativeEngine()
    study = Study(engine, Store(tmp_path / "cells", engine.fingerprint()), 2)
    notices: list[str] = []
    swept = sweep(file, study, notify=notices.append)
    counts = [len(outcome.cells) for outcome in swept.outcomes]
    for outcome in swept.outcomes:
        interval = mean_interval(outcome.rows["ftp"].to_list(), 0.9)
        half = (interval.high - interval.low) / 2
        assert outcome.narrow is narrow
        assert (half <= relative * interval.value) is narrow
    if narrow:
        # More than the least were needed, and fewer than the most.
        assert 3 < max(counts) < most
    else:
        assert counts == [most, most]
    assert any("not narrow enough yet" in words for words in notices)
    one = Study(engine, Store(tmp_path / "one", engine.fingerprint()), 1)
    assert sweep(file, one).summary().equals(swept.summary())


CONSTANT = """
title = "Nothing random"
duration = "4 s"
hosts = { jitter = "0 s" }
[topology]
kind = "dumbbell"
bottleneck = { rate = "1 Mbit/s", delay = "5 ms" }
access = { rate = "10 Mbit/s", delay = "1 ms" }
[flows.call]
application = { kind = "cbr", rate = "64 kbit/s" }
transport = { kind = "udp" }
"""

EQUAL = "All 3 runs are equal: nothing in them depends on the seed."


def test_runs_that_no_seed_changes_are_called_equal(tmp_path: Path) -> None:
    study = """
        seeds = 3
        [columns]
        sent = "SUM(sent_packets) FROM flows"
    """
    path = write(tmp_path, study)
    (tmp_path / "small.toml").write_text(CONSTANT)
    result = run(path)
    assert result.exit_code == 0, result.output
    assert EQUAL in result.output
    output = json.loads(run(path, "--json").stdout)
    assert [cell["equal"] for cell in output["cells"]] == [True]
    # The column is the same; other values are not.
    random = CONSTANT.replace("hosts = { jitter", "# { jitter")
    (tmp_path / "small.toml").write_text(random + '[measure]\npackets = ["bottleneck"]\n')
    result = run(path, "--json")
    assert [cell["equal"] for cell in json.loads(result.stdout)["cells"]] == [False]
    assert "are equal" not in result.output


def test_of_several_points_those_with_equal_runs_are_named(tmp_path: Path) -> None:
    study = """
        seeds = 3
        [axes]
        hosts.jitter = ["0 s", "1 ms"]
        [columns]
        rtt = "SUM(received_s) FROM messages"
    """
    path = write(tmp_path, study)
    (tmp_path / "small.toml").write_text(CONSTANT + "[measure]\nmessages = true\n")
    result = run(path)
    assert f"hosts.jitter 0 s: {EQUAL.lower()}" in result.output
    assert "hosts.jitter 1 ms: all" not in result.output


def test_a_sweep_beyond_the_machine_is_refused_before_it_runs(tmp_path: Path) -> None:
    study = """
        [set]
        duration = "100000000 s"
        [axes]
        measure.sample-every = ["1 us"]
        [columns]
        sent = "SUM(sent_packets) FROM flows"
    """
    path = write(tmp_path, study)
    result = run(path)
    assert result.exit_code == BAD_INPUT
    words = " ".join(result.output.split())
    assert "measure.sample-every 1 us" in words
    assert "of memory are free" in words
    assert "--any-size" in words
    assert not list((tmp_path / "out" / "cells").rglob("*.ontempo"))


def test_any_size_runs_a_sweep_that_is_refused_otherwise(
    tmp_path: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "make_engine", lambda: engine)
    study = """
        [axes]
        huge = [1]
        [columns]
        late = "SUM(late) FROM playout"
    """
    path = write(tmp_path, study)
    refused = run(path, "--jobs", "2")
    assert refused.exit_code == BAD_INPUT
    assert "1 runs take all memory" in refused.output
    assert engine.runs == 0
    result = run(path, "--any-size")
    assert result.exit_code == 0, result.output
    assert engine.runs == 1


def test_one_long_run_gives_an_interval_by_batches(tmp_path: Path) -> None:
    text = """
        [set]
        measure.sample-every = "100 ms"
        measure.queues = ["bottleneck"]
        duration = "65 s"
        [columns]
        queue = "AVG(value) FROM samples WHERE quantity = 'queue_packets'"
        [interval]
        by = "batch"
        batches = 6
    """
    path = write(tmp_path, text)
    output = json.loads(run(path, "--json").stdout)
    (cell,) = output["cells"]
    assert cell["columns"]["queue"]["n"] == 6
    assert -1 <= cell["lag_one"]["queue"] <= 1
    runs = pl.read_parquet(tmp_path / "out" / "results" / "**" / "*.parquet")
    assert runs["batch"].to_list() == list(range(6))
    bad = write(tmp_path, dedent(text).replace("FROM samples", "FROM flows"))
    assert "tables: adus, events, packets, samples" in run(bad).output


def test_batches_cover_the_measured_time_once() -> None:
    samples = pl.DataFrame({"time_s": [float(t) for t in range(5, 30)], "value": range(25)})
    canonical = '{"duration": "30 s", "measure": {"from": "5000 ms"}}'
    parts = list(cut({"samples": samples, "flows": samples}, canonical, 5))
    assert [part["samples"].height for part in parts] == [5] * 5
    assert set(parts[0]) == {"samples"}
    assert nanoseconds("2.5 min") == 150 * 10**9
    assert nanoseconds("1e-1 ms") == 100_000
    assert lag_one([1.0, -1.0] * 50) == pytest.approx(-0.99)
    assert lag_one([3.0, 3.0]) == 0


@pytest.mark.parametrize("batches", [2, 3, 7, 20, 64])
def test_each_row_is_in_one_batch(batches: int) -> None:
    times = [index * 100_000_000 / 1e9 for index in range(20, 101)]
    samples = pl.DataFrame({"time_s": times})
    canonical = '{"duration": "10 s", "measure": {"from": "2 s"}}'
    parts = list(cut({"samples": samples}, canonical, batches))
    assert pl.concat(part["samples"] for part in parts)["time_s"].to_list() == times


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("AVG(goodput) FROM flows", "goodput"),
        ("AVG(x) FROM nowhere", "tables: adus, capacity, events, flows"),
        ("goodput_bps FROM flows", "one value is needed"),
        ("MIN(transport) FROM flows", "is no number"),
        ("SUM(late) * 1.0 / SUM(units) FROM playout", "write 1.0 as 1e0"),
        ("AVG( FROM flows", "columns.mine"),
    ],
)
def test_a_query_that_fails_ends_the_study_at_its_first_run(
    tmp_path: Path, query: str, expected: str
) -> None:
    path = write(tmp_path, f'seeds = 30\n[columns]\nmine = "{query}"')
    result = run(path, "--jobs", "1")
    assert result.exit_code == BAD_INPUT
    assert "columns.mine" in result.output
    assert expected in result.output
    assert len(list((tmp_path / "out").rglob("*.zip"))) < 10
    assert not (tmp_path / "out" / "results").exists()


@pytest.mark.parametrize(
    ("query", "line"),
    [
        ("COUNT(*) FROM packets", 'measure.packets = ["bottleneck"]'),
        ("COUNT(*) FROM flows, packets", 'measure.packets = ["bottleneck"]'),
        ("SUM(drops) FROM queues", 'measure.queues = ["bottleneck"]'),
        ("COUNT(*) FROM samples", 'measure.sample-every = "100 ms"'),
        ("COUNT(*) FROM adus", "measure.adus = true"),
        ("COUNT(*) FROM messages", "measure.messages = true"),
        ("COUNT(*) FROM intervals", 'measure.intervals = "1 s"'),
    ],
)
def test_a_table_that_was_not_recorded_is_not_counted_as_empty(
    tmp_path: Path, query: str, line: str
) -> None:
    path = write(tmp_path, f'[columns]\nmine = "{query}"')
    result = run(path, "--jobs", "1")
    assert result.exit_code == BAD_INPUT
    said = " ".join(result.output.split())
    table = query.rsplit(maxsplit=1)[-1]
    assert f"columns.mine: the runs do not record the table {table}" in said
    assert said.endswith(f"the scenario asks for it by {line}")


def test_a_table_that_was_recorded_may_be_empty(tmp_path: Path) -> None:
    text = """
        set.measure.packets = ["bottleneck"]
        set.duration = "6 s"
        [columns]
        late = "COUNT(*) FROM packets WHERE time_s > 6"
        none = "WITH samples AS (SELECT * FROM flows) SELECT COUNT(*) FROM samples"
        reductions = "COUNT(*) FROM events WHERE time_s > 6"
    """
    result = run(write(tmp_path, text), "--json")
    assert result.exit_code == 0, result.output
    (cell,) = json.loads(result.stdout)["cells"]
    assert cell["columns"]["late"]["value"] == 0
    assert cell["columns"]["none"]["value"] == 5


def test_headings_break_between_words_and_every_value_is_shown_in_80_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = "AVG(goodput_bps) FROM flows"
    more = "".join(f"mean_goodput_of_all_flows_{i} = '{query}'\n" for i in range(6))
    path = write(tmp_path, "seeds = 2\n" + AXES + COLUMNS + more)

    def shown(columns: int) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = run(path).stdout.splitlines()
        return lines[1 : lines.index(next(one for one in lines if one.startswith("results:")))]

    def is_part(head: str, name: str) -> bool:
        return re.search(rf"(^|[._]){re.escape(head)}((?<=[._])|$)", name) is not None

    (whole, *rows) = shown(400)[:-1]
    values = [value for row in rows for value in row.split("  ") if "±" in value]
    for columns in (80, 60):
        lines = shown(columns)
        assert max(map(len, lines)) <= columns
        rows_shown = [line for line in lines if re.match(r"[13] +(pert|reno)", line)]
        heads = {word for line in lines if line not in rows_shown for word in line.split()}
        assert all(any(is_part(head, name) for name in whole.split()) for head in heads), heads
        joined = "".join("".join(lines).split())
        assert all(joined.count("".join(value.split())) for value in values), lines
        # Each table has all the axes, so that its rows can be told apart.
        assert len(rows_shown) % len(rows) == 0, lines
        assert len(rows_shown) > len(rows), lines
    assert whole.split()[:3] == ["flows.ftp.count", "flows.video.transport.congestion", "seeds"]


def test_a_query_without_rows_is_a_missing_value(tmp_path: Path) -> None:
    path = write(tmp_path, "[columns]\nnone = '''AVG(flow) FROM flows WHERE \"group\" = 'x' '''")
    (cell,) = json.loads(run(path, "--json").stdout)["cells"]
    assert cell["columns"]["none"] == {"value": None, "low": None, "high": None, "n": 0}


def test_an_infinite_value_is_a_missing_one_and_said_once_a_point(tmp_path: Path) -> None:
    text = """
        seeds = 3
        axes.flows.ftp.count = [1, 2]
        [columns]
        all = "SUM(flow) / (SUM(flow) - SUM(flow)) FROM flows"
        some = "SUM(units) / COUNT(DISTINCT flow) FROM playout"
    """
    path = write(tmp_path, text)
    result = run(path, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout, parse_constant=pytest.fail)
    for cell in found["cells"]:
        assert cell["columns"]["all"] == {"value": None, "low": None, "high": None, "n": 0}
        assert cell["columns"]["some"]["n"] == 3
    told = [line for line in result.stderr.splitlines() if "infinite" in line]
    assert sorted(told) == [
        f"{path}: columns.all: infinite at flows.ftp.count {count}, as by a division by zero;"
        " counted as missing"
        for count in (1, 2)
    ]
    json.loads((tmp_path / "out" / "study.json").read_text(), parse_constant=pytest.fail)
    assert "none" in run(path).stdout


def test_a_table_that_no_run_has_is_bad_input(tmp_path: Path) -> None:
    result = run(write(tmp_path, 'tables = ["flws"]'))
    assert result.exit_code == BAD_INPUT
    assert "'flws' is no table; known: flows, links" in " ".join(result.output.split())


def test_an_axis_with_the_name_of_a_tables_column_is_bad_input(tmp_path: Path) -> None:
    text = """
        tables = ["flows"]
        [[axes.group]]
        label = "few"
        set = { flows.ftp.count = 1 }
    """
    result = run(write(tmp_path, text))
    assert result.exit_code == BAD_INPUT
    said = "axes.group: the table flows has a column of this name"
    assert said in " ".join(result.output.split())


# The folder.


def test_a_folder_is_that_of_one_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = write(tmp_path / "one", 'tables = ["flows"]' + COLUMNS)
    other = write(tmp_path / "other", COLUMNS)
    monkeypatch.chdir(tmp_path)
    assert runner.invoke(main.app, ["sweep", "one/study.toml"]).exit_code == 0
    summary = tmp_path / "out" / "sweep" / "study" / "summary.parquet"
    before = summary.read_bytes()
    refused = runner.invoke(main.app, ["sweep", "other/study.toml"])
    assert refused.exit_code == BAD_INPUT
    assert all(word in refused.output for word in (str(one), "other/study.toml", "--out"))
    assert summary.read_bytes() == before
    # The same study from elsewhere, and both moved.
    monkeypatch.chdir(tmp_path / "one")
    again = ["sweep", "study.toml", "--out", "../out/sweep/study"]
    assert runner.invoke(main.app, again).exit_code == 0
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    monkeypatch.chdir(moved)
    assert runner.invoke(main.app, ["sweep", "one/study.toml"]).exit_code == 0
    moved.rename(tmp_path)
    assert run(other).exit_code == 0


def test_tables_that_the_study_no_longer_names_are_removed(tmp_path: Path) -> None:
    write(tmp_path, COLUMNS)
    theirs = tmp_path / "out" / "tables"
    theirs.mkdir(parents=True)
    assert run(tmp_path / "study.toml").exit_code == 0
    assert theirs.is_dir()  # Not ours: nothing of ours was there before.
    assert run(write(tmp_path, 'tables = ["flows"]' + COLUMNS)).exit_code == 0
    assert list(theirs.rglob("*.parquet"))
    assert run(write(tmp_path, 'tables = ["links"]' + COLUMNS)).exit_code == 0
    assert [one.name for one in theirs.iterdir()] == ["links"]
    assert run(write(tmp_path, COLUMNS)).exit_code == 0
    assert not theirs.exists()


@pytest.mark.parametrize("theirs", ["results/thesis.txt", "tables/thesis.txt"])
def test_a_folder_with_files_of_the_users_is_refused_before_anything_runs(
    tmp_path: Path, theirs: str
) -> None:
    path = write(tmp_path, 'tables = ["flows"]' + COLUMNS)
    kept = tmp_path / "out" / theirs
    kept.parent.mkdir(parents=True)
    kept.write_text("ten years")
    result = run(path)
    assert result.exit_code == BAD_INPUT
    assert "holds files that were not written here" in " ".join(result.output.split())
    assert kept.read_text() == "ten years"
    assert not (tmp_path / "out" / "cells").exists()


def test_names_and_values_of_a_study_send_no_control_characters_to_the_terminal(
    tmp_path: Path,
) -> None:
    columns = COLUMNS.replace("videos =", '"vi\\u001b[31mdeos" =')
    result = run(write(tmp_path, columns))
    assert result.exit_code == 0
    assert "\x1b[31m" not in result.output
    assert "deos" in result.output


def test_two_runs_on_one_folder_are_kept_apart(tmp_path: Path) -> None:
    path = write(tmp_path, COLUMNS)
    (tmp_path / "out").mkdir()
    with (tmp_path / "out" / LOCK).open("w") as held:
        held.write("process 7 on elsewhere")
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)
        for command in (["sweep", str(path)], ["reproduce", "--only", "pert/fig1"]):
            result = runner.invoke(main.app, [*command, "--out", str(tmp_path / "out")])
            assert result.exit_code == ENVIRONMENT
            assert "in use by process 7 on elsewhere" in result.output
    assert run(path).exit_code == 0


def test_a_damaged_cell_runs_again_and_is_reported(tmp_path: Path) -> None:
    path = write(tmp_path, "seeds = 2" + COLUMNS)
    before = json.loads(run(path, "--json").stdout)
    broken = sorted((tmp_path / "out" / "cells").rglob("*.zip"))[0]
    broken.write_bytes(b"no zip at all")
    after = run(path, "--json")
    assert json.loads(after.stdout) == before
    assert "run again:" in after.stderr
    assert "2 cells, 1 of them kept" in after.stderr


def test_a_disk_that_is_full_as_results_are_written_keeps_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, 'seeds = 2\ntables = ["flows"]' + COLUMNS)
    write_bytes = Path.write_bytes

    def full(place: Path, data: bytes) -> int:
        if "cells" not in place.parts:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_bytes(place, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    result = run(path)
    assert result.exit_code == ENVIRONMENT
    assert "the disk is full; finished runs are kept" in result.output
    assert not (tmp_path / "out" / "results").exists()
    assert not list((tmp_path / "out").glob(".tmp-*"))
    monkeypatch.undo()
    assert "2 cells, 2 of them kept from before" in run(path).output


def test_a_dry_run_touches_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, "seeds = 5" + AXES + COLUMNS)
    result = run(path, "--dry-run")
    assert result.exit_code == 0
    assert "4 points, 5 seeds each, 20 runs" in result.output
    assert not (tmp_path / "out").exists()


def test_a_point_that_always_gives_zero_is_narrow_at_once(
    tmp_path: Path, engine: FakeEngine
) -> None:
    text = """
        [columns]
        zero = "SUM(late) * 0 FROM playout"
        [stop]
        column = "zero"
        relative = 0.05
    """
    file = read(tmp_path, text)
    study = Study(engine, Store(tmp_path / "cells", "engine-1"), 1)
    (outcome,) = sweep(file, study).outcomes
    assert outcome.narrow
    assert len(outcome.cells) == 5
    assert not math.isnan(outcome.intervals["zero"].low)
