"""The comparison with other transports: how frames are counted, and one short real cell."""

import shutil
import struct
from pathlib import Path as File

import polars as pl
import pytest
from experiments.comparison import __main__ as command
from experiments.comparison import contenders, page
from experiments.comparison.contenders import CONTENDERS, DIRECT, ORDERS, SRT
from experiments.comparison.ends import ENTRY
from experiments.comparison.frames import (
    arrivals,
    entries,
    pacing_errors,
    packet_latencies,
    quantile,
    unit_table,
)
from experiments.comparison.measure import comparison_cell, measure, read_end
from experiments.comparison.paths import MARGIN_MS, Path, paths
from experiments.comparison.readings import readings
from experiments.comparison.transport_stream import (
    PACKET,
    Stream,
    pcr,
    read_stream,
)
from made import Made, Tables

from ontempo.lab.engine import NativeEngine
from ontempo.lab.errors import BadInputError, UnfitEnvironmentError
from ontempo.lab.real_time import hindrance
from ontempo.lab.study import Cell

PAT, PMT, VIDEO, AUDIO, NOTHING = 0, 0x1000, 0x100, 0x101, 0x1FFF


# Streams that are made here.


def packet(pid: int, content: bytes, *, starts: bool = False, clock: int | None = None) -> bytes:
    """A transport packet; what `content` leaves free is an adaptation field."""
    field = b""
    if clock is not None:
        field = b"\x10" + ((clock // 300 << 15) | 0x7E00 | clock % 300).to_bytes(6, "big")
    room = PACKET - 4 - len(content)
    header = struct.pack("!BHB", 0x47, (0x4000 if starts else 0) | pid, 0x30 if room else 0x10)
    if not room:
        return header + content
    filled = field or (b"\0" if room > 1 else b"")
    stuffing = b"\xff" * (room - 1 - len(filled))
    return header + bytes([room - 1]) + filled + stuffing + content


def table(pid: int, section: bytes) -> bytes:
    content = b"\0\x02" + struct.pack("!H", 0xB000 | len(section) + 4) + section + b"crc!"
    return packet(pid, content.ljust(PACKET - 4, b"\xff"), starts=True)


def tables() -> list[bytes]:
    programmes = b"\0\x01\xc1\0\0" + struct.pack("!HH", 1, 0xE000 | PMT)
    streams = b"".join(
        struct.pack("!BHH", kind, 0xE000 | pid, 0xF000) for kind, pid in ((0x1B, 256), (0x0F, 257))
    )
    return [table(PAT, programmes), table(PMT, b"\0\x01\xc1\0\0\xe1\0\xf0\0" + streams)]


def made_stream(frames: int = 6) -> list[bytes]:
    """Tables, and frames of five packets with a PES packet of sound and filling; 10 a 100 ms."""
    made = tables()
    for frame in range(frames):
        for part in range(10):
            words = f"frame {frame}, part {part}; ".encode() * 20
            clock = (frame * 10 + part + 2) * 270_000 if part in (0, 5) else None
            if part < 5:
                content = words[:150]
                made.append(packet(VIDEO, content, starts=part == 0, clock=clock))
            elif part == 5:
                made.append(packet(VIDEO, b"", clock=clock))
            elif part == 6:
                made.append(packet(AUDIO, words[:184], starts=True))
            else:
                made.append(packet(NOTHING, b"\xff" * 184))
    return made


def written(folder: File, packets: list[bytes]) -> File:
    path = folder / "made.ts"
    path.write_bytes(b"".join(packets))
    return path


@pytest.fixture
def stream(tmp_path: File) -> Stream:
    return read_stream(written(tmp_path, made_stream()))


def recorded(datagrams: list[tuple[int, bytes]]) -> bytes:
    return b"".join(ENTRY.pack(stamp, len(content)) + content for stamp, content in datagrams)


def test_a_stream_is_read_into_frames_and_sound(stream: Stream) -> None:
    assert [unit.kind for unit in stream.units] == ["video", "audio"] * 6
    assert stream.units[0].packets == (2, 3, 4, 5, 6)
    assert stream.units[1].packets == (8,)


def test_packets_are_due_by_the_clock_between_and_beyond_its_samples(stream: Stream) -> None:
    assert [pcr(one) for one in stream.packets[:4]] == [None, None, 540_000, None]
    assert stream.due_ns == tuple(place * 10_000_000 for place in range(62))


def test_a_clock_that_wraps_goes_on(tmp_path: File) -> None:
    wraps_at = (1 << 33) * 300
    packets = [*tables(), packet(VIDEO, b"a", starts=True, clock=wraps_at - 2700)]
    packets += [packet(VIDEO, b"b"), packet(VIDEO, b"c", clock=2700)]
    stream = read_stream(written(tmp_path, packets))
    assert stream.due_ns == (0, 100_000, 200_000, 300_000, 400_000)


def test_a_datagram_leaves_when_its_last_packet_is_due(stream: Stream) -> None:
    sent = list(stream.datagrams())
    assert [len(content) // PACKET for _, content in sent] == [7] * 8 + [6]
    assert [due // 10_000_000 for due, _ in sent] == [6, 13, 20, 27, 34, 41, 48, 55, 61]


@pytest.mark.parametrize(
    ("packets", "sentence"),
    [
        ([], "0 bytes"),
        ([b"\x47" * 100], "100 bytes, which is no whole number of transport packets"),
        ([b"\x48" * PACKET], "does not begin with 0x47"),
        (tables(), "0 PCR, where at least 2"),
        (made_stream()[2:], "no PAT"),
        ([tables()[0], *made_stream()[2:]], "no PMT"),
        (
            [*tables(), packet(VIDEO, b"", clock=2700), packet(VIDEO, b"", clock=1)],
            "the PCR jumps at packet 3",
        ),
    ],
)
def test_what_is_no_stream_is_named(tmp_path: File, packets: list[bytes], sentence: str) -> None:
    with pytest.raises(BadInputError, match=rf"made.ts: .*{sentence}"):
        read_stream(written(tmp_path, packets))


# Frames in a recording.


def sent_and_delayed(stream: Stream, delay_ns: int) -> tuple[list[int], list[tuple[int, bytes]]]:
    sent = [(10**18 + due, content) for due, content in stream.datagrams()]
    return [left for left, _ in sent], [(left + delay_ns, content) for left, content in sent]


def test_what_comes_whole_is_as_late_as_its_last_packet(stream: Stream) -> None:
    left, came = sent_and_delayed(stream, 50_000_000)
    found = arrivals(stream, recorded(came))
    table = unit_table(stream, left, found)
    assert table.height == 12
    assert table["latency_s"].to_list() == pytest.approx([0.05] * 12)
    assert packet_latencies(stream, left, found, 0) == pytest.approx([0.05] * 36)
    assert (found.repeated, found.foreign, found.overtaken) == (0, 0, 0)


def test_a_frame_without_one_of_its_packets_is_lost(stream: Stream) -> None:
    left, came = sent_and_delayed(stream, 50_000_000)
    del came[2]  # Packets 14 to 20: of the second frame the last three, and its sound.
    table = unit_table(stream, left, arrivals(stream, recorded(came)))
    lost = table.with_row_index().filter(pl.col("latency_s").is_null())
    assert lost["index"].to_list() == [2, 3]


def test_what_comes_out_of_order_twice_and_in_other_pieces_is_found(stream: Stream) -> None:
    left, came = sent_and_delayed(stream, 50_000_000)
    late, content = came[3]
    came[3] = (late + 200_000_000, content[: 3 * PACKET])
    came += [came[0], (late + 300_000_000, content[3 * PACKET :]), (late + 1, b"\x80 RTP")]
    found = arrivals(stream, recorded(sorted(came, key=lambda one: one[0])))
    latencies = unit_table(stream, left, found).filter(kind="video")["latency_s"].to_list()
    # Packets 21 to 27 were in that datagram, 22 to 26 are the third frame.
    assert latencies == pytest.approx([0.05, 0.05, 0.35, 0.05, 0.05, 0.05])
    assert found.repeated == 5  # Of the first datagram's seven packets two are tables.


def test_packets_that_are_alike_tell_nothing(tmp_path: File) -> None:
    packets = made_stream(2)
    packets[4] = packets[15]
    stream = read_stream(written(tmp_path, packets))
    left, came = sent_and_delayed(stream, 1_000_000)
    found = arrivals(stream, recorded(came))
    assert found.at_ns[4] is None
    assert found.at_ns[15] is None
    assert unit_table(stream, left, found)["latency_s"].null_count() == 0


@pytest.mark.parametrize("kept", [5, 20, PACKET])
def test_a_recording_that_is_cut_is_told(stream: Stream, kept: int) -> None:
    whole = recorded(sent_and_delayed(stream, 0)[1])
    with pytest.raises(UnfitEnvironmentError, match="the recording is cut in a"):
        list(entries(whole[:kept]))


def test_quantiles_are_values_that_were_seen() -> None:
    rising = [float(one) for one in range(1, 101)]
    assert (quantile(rising, 0.5), quantile(rising, 0.99), quantile(rising, 1)) == (50, 99, 100)
    assert quantile([], 0.5) != quantile([], 0.5)


def test_the_source_is_held_against_its_most_punctual_datagram() -> None:
    assert pacing_errors([0, 10, 20], [1000, 1013, 1025]) == pytest.approx([0, 3e-9, 5e-9])


def test_a_clock_that_was_set_during_a_run_is_refused(tmp_path: File, stream: Stream) -> None:
    (tmp_path / "source.json").write_text('{"clock_moved_ns": 40000000}')
    with pytest.raises(UnfitEnvironmentError, match=r"srt: the machine's clock was set by 40 ms"):
        read_end("srt", tmp_path, stream)
    with pytest.raises(UnfitEnvironmentError, match="srt: its source did not end in time"):
        read_end("srt", tmp_path / "nowhere", stream)


# Paths, contenders, the page.


def test_every_path_is_a_scenario() -> None:
    engine = NativeEngine()
    for path in {*paths("quick"), *paths("full")}:
        cell = comparison_cell(path, [DIRECT, contenders.HTTP], 20, 0)
        engine.load(cell.scenario, cell.overrides)
    assert len(set(paths("full"))) == 63


def test_losses_in_bursts_have_the_same_mean() -> None:
    link = Path(0.05, True, 100, 2.0).link("a", "b")
    p, q = (float(link.split(f"{name} = ")[1].split()[0].strip(",}")) for name in "pq")
    assert p / (p + q) == pytest.approx(0.05, abs=1e-5)


def test_the_buffer_follows_the_round_trip() -> None:
    assert [Path(0, False, rtt, 1.0).latency_ms for rtt in (20, 100, 300)] == [120, 400, 1200]
    assert "latency=400" in " ".join(SRT.send(Path(0, False, 100, 2.0)))


def test_a_contender_that_is_missing_is_told_and_the_rest_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: File
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert SRT.lacks() == "not run: install srt-tools"
    assert contenders.RIST.lacks() == "not run: install rist-tools"
    assert not DIRECT.lacks()


def test_who_runs_side_by_side_does_not_depend_on_who_is_missing() -> None:
    whole = command.batches(CONTENDERS)
    assert [len(row) <= command.TOGETHER for row in whole] == [True] * len(whole)
    without = command.batches([one for one in CONTENDERS if one is not SRT])
    assert without == [[one for one in row if one is not SRT] for row in whole]


def test_an_unknown_contender_is_named() -> None:
    with pytest.raises(BadInputError, match="no contender is called 'zixi'; there are direct, rtp"):
        command.choose(["zixi"])


def made_results() -> tuple[Made, Path]:
    """Ten frames by each of two contenders: one of SRT's lost, one late; all by nothing."""
    path = Path(0.05, True, 100, 2.0)

    def make(_cell: Cell) -> Tables:
        waits: list[float | None] = [0.45] * 8
        late = (path.playout_ms(400) + 1) / 1000
        units = [
            {"kind": kind, "latency_s": wait, "contender": name}
            for name, ending in (("direct", [0.05, 0.05]), ("srt", [None, late]))
            for kind in ("video", "audio")
            for wait in [*waits, *ending]
        ]
        carried = [
            {
                "contender": name,
                "latency_p50_s": 0.45,
                "latency_p99_s": 0.46,
                "forth_bytes": 110,
                "back_bytes": 3,
                "stream_bytes": 100,
                "stream_s": 2.0,
                "sender_processor_s": 0.1,
                "receiver_processor_s": 0.2,
                "pacing_p99_s": 0.0002,
                "pacing_max_s": 0.003,
                "ended_early": "",
                "overflowed": 0,
            }
            for name in ("direct", "srt")
        ]
        return {"units": pl.DataFrame(units), "carried": pl.DataFrame(carried)}

    return Made((comparison_cell(path, [DIRECT, SRT], 20, 0),), make), path


@pytest.mark.skipif(bool(SRT.lacks()), reason=SRT.lacks())
def test_readings_count_lost_and_late_frames() -> None:
    rows = readings(made_results()[0], CONTENDERS).to_dicts()
    assert [row["contender"] for row in rows] == ["direct", "srt"]
    nothing, srt = rows
    assert (nothing["frames"], nothing["lost"], nothing["late"]) == (10, 0, 0)
    assert (srt["frames"], srt["lost"], srt["late"], srt["sound"]) == (10, 1, 1, 0.2)
    assert srt["wire_forth"] == pytest.approx(1.1)
    assert srt["sender_ms"] == pytest.approx(50)


@pytest.mark.skipif(bool(SRT.lacks()), reason=SRT.lacks())
def test_the_page_keeps_what_people_wrote(tmp_path: File) -> None:
    rows = readings(made_results()[0], CONTENDERS)
    written = tmp_path / "page.md"
    written.write_text(f"Before.\n{page.BEGIN}\nold\n{page.END}\nAfter.\n")
    measured = page.tables(rows, CONTENDERS, ["RIST: not run: install rist-tools"])
    page.write_page(written, measured, page.figures(rows, CONTENDERS))
    text = written.read_text()
    assert text.startswith("Before.\n")
    assert text.endswith("\nAfter.\n")
    assert "old" not in text
    assert "### 5 % loss, bursts; 100 ms; 2 times the stream's rate" in text
    assert "| SRT | 10.0 % | 10.0 % | 20.0 % | 450 ms | 460 ms | 1.10 | 0.030 | 50 | 100 |" in text
    assert "- RIST: not run: install rist-tools" in text
    assert (tmp_path / "images" / "comparison-late.png").stat().st_size > 1000
    written.write_text("no marks")
    with pytest.raises(BadInputError, match=r"page.md: lacks the lines"):
        page.write_page(written, measured, {})


# The whole of it, with real packets.


def test_a_stream_is_carried_through_the_emulated_path(tmp_path: File) -> None:
    missing = [f"{name} is missing" for name in ("ffmpeg",) if shutil.which(name) is None]
    if lacks := hindrance() or ", ".join(missing) or SRT.lacks() or ORDERS[0].lacks():
        pytest.skip(lacks)
    path = Path(0.0, False, 20, 2.0)
    together = [DIRECT, SRT, ORDERS[0]]
    cell = comparison_cell(path, together, 2, 0)
    measure(cell, tmp_path, path=path, together=together, counted_s=2)
    units = pl.read_parquet(tmp_path / "units.parquet").filter(kind="video")
    carried = pl.read_parquet(tmp_path / "carried.parquet")
    for name, least_s in (("direct", 0.010), ("srt", 0.120), ("ontempo-ordered", 0.120)):
        mine = units.filter(contender=name)["latency_s"]
        assert 48 <= mine.len() <= 52
        assert mine.null_count() == 0
        row = carried.filter(contender=name).row(0, named=True)
        assert least_s < row["latency_p50_s"] < least_s + MARGIN_MS / 1000
        assert row["forth_bytes"] > row["stream_bytes"]
    assert not (tmp_path / "ends").exists()
