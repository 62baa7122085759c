"""The compiled core as Python sees it: tables, seeds, threads, interruptions, messages."""

import _thread
import ast
import hashlib
import inspect
import pydoc
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from small import LONG, TEXT, scenario

import ontempo as ot
from ontempo import live, media, qos
from ontempo.lab.programs import program

STUB = Path(ot.__file__).with_name("_native.pyi")


@pytest.fixture(scope="module")
def result() -> ot.Result:
    return ot.run(scenario())


def digests(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}


# Bounds.


def test_a_run_beyond_the_machine_is_refused_and_says_how_to_run_it() -> None:
    huge = scenario().with_overrides(["duration=100000000 s", "measure.sample-every=1 us"])
    with pytest.raises(ot.ScenarioError, match="of memory are free") as refused:
        ot.run(huge)
    assert "any_size=True runs it as it is" in str(refused.value)
    assert huge.too_large() is not None
    assert scenario().too_large(1000) is None
    # Elsewhere the memory is another; the time is the same.
    assert "days" in (huge.too_large(0) or "")


def test_any_size_runs_what_is_refused_otherwise() -> None:
    long = scenario().with_overrides(["duration=4000000000 s"])
    with pytest.raises(ot.ScenarioError, match="days"):
        ot.run(long)
    token = ot.CancelToken()
    token.cancel()
    with pytest.raises(ot.Cancelled):
        ot.run(long, cancel=token, any_size=True)


# Overrides.

WHOLE = 'topology.bottleneck={ rate = "4 Mbit/s", delay = "9 ms" }'


def test_fields_that_an_override_of_a_table_loses_are_told(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(TEXT)
    words = r"replaces the whole table, without the file's `queue`; to change single fields"
    with pytest.warns(UserWarning, match=words) as told:
        loaded = ot.load(path, ["flows.ftp.count=3", WHOLE])
    assert [Path(one.filename).name for one in told] == ["test_native.py"]
    with pytest.warns(UserWarning, match=words):
        ot.parse(TEXT, overrides=[WHOLE])
    with pytest.warns(UserWarning, match=words):
        ot.parse(TEXT).with_overrides([WHOLE])
    # What has been told is not told again, and a single field loses nothing.
    loaded.with_overrides(["topology.bottleneck.rate=5 Mbit/s"])
    ot.load(path, ["topology.bottleneck.rate=5 Mbit/s"])


# Docstrings.

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "tables.md"


def test_help_of_a_result_says_what_every_column_means() -> None:
    text = pydoc.plain(pydoc.render_doc(ot.Result))
    pages = re.split(r"\n## `(\w+)`\n", REFERENCE.read_text("utf-8"))[1:]
    assert len(pages) == 2 * 13
    for name, page in zip(pages[::2], pages[1::2], strict=True):
        summary = page.strip().splitlines()[0]
        assert f"{name}: {summary}" in text
        documented = inspect.getdoc(getattr(ot.Result, name)) or ""
        assert documented.splitlines()[0] == summary
        rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| (.+) \|$", page, re.MULTILINE)
        assert rows
        for column, kind, meaning in rows:
            assert f"    {column} ({kind}): {meaning}" in documented.splitlines()
            assert f"{column} ({kind}): {meaning}" in text


def test_the_stub_says_of_each_table_what_the_module_says() -> None:
    tree = ast.parse(STUB.read_text("utf-8"))
    (stub,) = (
        node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Result"
    )
    methods = [node for node in stub.body if isinstance(node, ast.FunctionDef)]
    said = {method.name: ast.get_docstring(method) for method in methods}
    for name in ot.run(scenario()).tables:
        text = inspect.getdoc(getattr(ot.Result, name)) or ""
        assert " ".join((said[name] or "").split()) == text.splitlines()[0]


# Tables.


def test_every_flow_has_a_row_that_names_its_group(result: ot.Result) -> None:
    flows = pl.DataFrame(result.flows)
    assert flows["group"].value_counts().sort("group").rows() == [("ftp", 2), ("video", 3)]
    assert flows["goodput_bps"].sum() <= 3e6
    assert flows["goodput_bps"].sum() > 2.5e6
    assert len(result.flows) == result.flows.num_rows == flows.height == 5
    assert result.flows.column_names == flows.columns


def test_tables_by_name_are_the_tables_by_attribute(result: ot.Result) -> None:
    for name, table in result.tables.items():
        assert table.name == name
        assert pl.DataFrame(table).equals(pl.DataFrame(getattr(result, name)))
    assert pl.DataFrame(result.playout)["startup_delay_s"].to_list() == [1.0, 5.0] * 3


def address_in_pyarrow(table: ot.Table) -> int:
    values = pa.table(table)["goodput_bps"].chunk(0).buffers()[1]
    return int(values.address)


def address_in_polars(table: ot.Table) -> int:
    values = pl.DataFrame(table)["goodput_bps"].to_numpy(allow_copy=False)
    return int(values.__array_interface__["data"][0])


def address_in_pandas(table: ot.Table) -> int:
    frame: pd.DataFrame = pa.table(table).to_pandas(split_blocks=True)
    return int(frame["goodput_bps"].to_numpy().__array_interface__["data"][0])


@pytest.mark.parametrize("reader", [address_in_polars, address_in_pandas])
def test_readers_share_the_memory_of_a_table(
    result: ot.Result, reader: Callable[[ot.Table], int]
) -> None:
    table = result.flows
    assert reader(table) == reader(table) == address_in_pyarrow(table)


def test_a_frame_outlives_the_result_that_it_shares_memory_with() -> None:
    result = ot.run(scenario())
    frame = pl.DataFrame(result.flows)
    before = frame.clone().with_columns(pl.col("goodput_bps") + 0.0)
    del result
    assert frame.equals(before)


# Seeds.


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        ot.run(scenario(), seed).save(tmp_path / name)
    a, b, c = (digests(tmp_path / name) for name in "abc")
    assert set(a) == {f"{name}.parquet" for name in ot.run(scenario()).tables} | {"run.json"}
    assert a == b
    assert a["flows.parquet"] != c["flows.parquet"]


def test_saved_tables_read_back_as_they_were(tmp_path: Path, result: ot.Result) -> None:
    result.save(tmp_path)
    read = pl.read_parquet(tmp_path / "flows.parquet")
    assert read["goodput_bps"].equals(pl.DataFrame(result.flows)["goodput_bps"])


def test_the_program_reads_what_is_saved_as_its_own(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(TEXT)

    def ontempo(*words: str) -> None:
        command = [program(), *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr

    ontempo("simulate", "s.toml", "--out", "own")
    ot.run(ot.load(tmp_path / "s.toml")).save(tmp_path / "saved")
    assert digests(tmp_path / "saved") == digests(tmp_path / "own")
    ontempo("show", "saved")
    ontempo("summary", "saved")
    assert (tmp_path / "saved" / "show.html").is_file()


@pytest.mark.parametrize("seed", [-1, 2**64, -(10**60)])
def test_a_seed_out_of_range_is_named_with_the_range(seed: int) -> None:
    with pytest.raises(ValueError, match=r"^seed: -?\d+") as refused:
        ot.run(scenario(), seed=seed)
    assert "from 0 to 18446744073709551615" in str(refused.value)
    assert len(str(refused.value)) < 120


def test_a_seed_that_is_no_number_is_named() -> None:
    for wrong in ("1", 1.5):
        with pytest.raises(TypeError, match=r"^seed: "):
            ot.run(scenario(), seed=wrong)  # type: ignore[arg-type]
    assert ot.run(scenario(), seed=2**64 - 1).seed == 2**64 - 1


def test_a_run_without_a_seed_takes_the_scenarios(result: ot.Result) -> None:
    assert scenario().seed == result.seed == 4
    assert ot.run(scenario("seed=9")).seed == 9


def test_equal_canonical_forms_are_equal_scenarios() -> None:
    assert scenario().canonical() == ot.parse("# a remark\n" + TEXT).canonical()
    assert scenario().canonical() != scenario("flows.ftp.count=3").canonical()
    assert scenario().with_overrides(["flows.ftp.count=3"]).canonical() == (
        scenario("flows.ftp.count=3").canonical()
    )


# Threads.


def test_another_thread_advances_while_a_run_goes_on() -> None:
    token, outcome = ot.CancelToken(), []

    def work() -> None:
        try:
            ot.run(scenario(LONG), cancel=token)
        except ot.Cancelled as stopped:
            outcome.append(stopped)

    worker = threading.Thread(target=work)
    worker.start()
    steps, until = 0, time.monotonic() + 0.3
    while time.monotonic() < until:
        steps += 1
    assert worker.is_alive()
    token.cancel()
    worker.join(10)
    assert len(outcome) == 1
    # The interpreter's lock changes hands every 5 ms at best: a run that held it between
    # would have let through some dozens of steps.
    assert steps > 1000


def test_two_concurrent_runs_give_the_results_of_each_alone(tmp_path: Path) -> None:
    def work(seed: int) -> None:
        ot.run(scenario(), seed).save(tmp_path / f"together-{seed}")

    workers = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for seed in (1, 2):
        ot.run(scenario(), seed).save(tmp_path / f"alone-{seed}")
        assert digests(tmp_path / f"alone-{seed}") == digests(tmp_path / f"together-{seed}")


# Interruptions.


def test_a_token_cancelled_before_the_run_stops_it() -> None:
    token = ot.CancelToken()
    token.cancel()
    with pytest.raises(ot.Cancelled):
        ot.run(scenario(LONG), cancel=token)


def test_ctrl_c_in_the_main_thread_stops_a_run() -> None:
    threading.Timer(0.2, _thread.interrupt_main).start()
    with pytest.raises(KeyboardInterrupt):
        ot.run(scenario(LONG))
    assert ot.run(scenario()).flows.num_rows == 5


# Messages.


@pytest.mark.parametrize(
    ("line", "instead", "message"),
    [
        ('rate = "3 Mbit/s"', "rate = 3", r"small\.toml:10: topology\.bottleneck\.rate: .*unit"),
        ("count = 3", "cuont = 3", r"small\.toml:15: flows\.video\.cuont: .*`count`"),
        ('"pert"', '"perl"', r"small\.toml:18: flows\.video\.transport\.congestion.*pert"),
        ('queue = { kind = "drop-tail"', 'queue = { kind = "tail-drop"', r"small\.toml:12: "),
        ("[measure]", "[measure", r"small\.toml:25"),
    ],
)
def test_a_mistake_is_reported_with_file_line_and_field(
    line: str, instead: str, message: str
) -> None:
    assert line in TEXT
    with pytest.raises(ot.ScenarioError, match=message):
        ot.parse(TEXT.replace(line, instead, 1), "small.toml")


def test_a_mistaken_override_is_reported_as_it_was_given() -> None:
    with pytest.raises(ot.ScenarioError, match=r"--set duration=.*unknown unit `parsec`"):
        scenario('duration="1 parsec"')


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ot.ScenarioError, match=r"none\.toml"):
        ot.load(tmp_path / "none.toml")


def test_the_explanation_draws_the_network() -> None:
    text = scenario().explain()
    assert "3 Mbit/s" in text
    assert "left" in text


# What a reader of the package sees.


def test_stubs_agree_with_the_compiled_module() -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "ontempo._native"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_package_exports_what_the_module_has() -> None:
    internal = {"PendingResult", "Waker", "begin", "bind", "check_options", "default_options"}
    internal |= {name for name in ot._native.__all__ if name.lower().startswith(("live", "qos"))}
    native = {
        name
        for package in (ot, live, media, qos)
        for name in package.__all__
        if hasattr(ot._native, name) and getattr(ot._native, name) is getattr(package, name)
    }
    assert native == set(ot._native.__all__) - internal


@pytest.mark.parametrize("name", ot.__all__)
def test_every_public_name_is_documented_when_asked_for(name: str) -> None:
    assert (getattr(ot, name).__doc__ or "").strip()


def test_every_public_method_is_documented_in_the_stub() -> None:
    tree = ast.parse(STUB.read_text("utf-8"))
    bare = [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and not node.name.startswith("__")
        and ast.get_docstring(node) is None
    ]
    assert bare == []


def test_a_table_is_read_row_by_row_and_by_pandas(result: ot.Result) -> None:
    rows = list(result.flows)
    assert rows == pl.DataFrame(result.flows).to_dicts()
    frame = pd.DataFrame(result.flows)
    assert list(frame.columns) == result.flows.column_names
    assert frame["goodput_bps"].sum() == pl.DataFrame(result.flows)["goodput_bps"].sum()
    assert list(result.flows.columns) == result.flows.column_names
    assert "bits per second" in result.flows.columns["goodput_bps"]


def test_a_text_in_place_of_a_list_of_overrides_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(TEXT)
    with pytest.raises(TypeError, match=r'write \["seed=1"\], not "seed=1"'):
        ot.load(tmp_path / "s.toml", "seed=1")
