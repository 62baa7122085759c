"""What viewers see of a film, decoded by ffmpeg: made films, real decoding."""

import json
import shutil
import subprocess
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from ontempo.lab.errors import BadInputError, UnfitEnvironmentError
from ontempo.lab.main import app
from ontempo.lab.programs import program
from ontempo.lab.quality import measure, seconds
from ontempo.lab.quality_film import difference, read_film

SCENARIO = """
title = "A film"
duration = "7 s"
[topology]
kind = "dumbbell"
bottleneck = { rate = "10 Mbit/s", delay = "10 ms" }
access = { rate = "100 Mbit/s", delay = "1 ms" }
[flows.film]
application = { kind = "media", file = "film.ts", latency = ["200 ms"] }
transport = { kind = "udp" }
stop = "6 s"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A film of 2 s with B pictures in `film.ts`, and the scenario that sends it three times."""
    if missing := [name for name in ("ffmpeg", "ffprobe") if shutil.which(name) is None]:
        pytest.skip(f"{missing[0]} is not installed")
    folder = tmp_path_factory.mktemp("quality")
    source = "testsrc2=size=160x96:rate=25:duration=2"
    sound = "sine=sample_rate=48000:duration=2"
    command = ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", source, "-f", "lavfi", "-i", sound]
    command += ["-c:v", "libx264", "-preset", "veryfast", "-g", "25", "-bf", "3", "-c:a", "aac"]
    made = subprocess.run([*command, "-f", "mpegts", str(folder / "film.ts")], check=False)
    if made.returncode:
        pytest.skip("this ffmpeg cannot encode H.264 with x264")
    (folder / "s.toml").write_text(SCENARIO)
    return folder


def run(folder: Path, name: str, *sets: str) -> Path:
    """Simulate the scenario with these values into a folder."""
    options = [word for text in sets for word in ("--set", text)]
    command = [program(), "simulate", "s.toml", "--out", name, *options]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE)
    return folder / name


def test_a_film_that_arrives_is_the_film_and_losses_cost_the_more_the_more_there_are(
    folder: Path,
) -> None:
    film = folder / "film.ts"
    scores = []
    for name, rate in (("none", 0.0), ("few", 0.01), ("many", 0.08)):
        loss = f'topology.bottleneck.loss={{kind="bernoulli",rate={rate}}}'
        found = measure(run(folder, name, loss), film, [])[1]
        [one] = found
        media = pl.read_parquet(folder / name / "media.parquet").row(0, named=True)
        assert (one.pictures, one.on_time) == (media["pictures"], media["decodable_pictures"])
        assert one.decoded == one.left, "what is left of the stream decodes, no more and no less"
        scores.append(one)
    none, few, many = scores
    assert none.ssim_mean == none.ssim_p5 == 1.0
    assert few.on_time > many.on_time > 0, "the test needs losses that differ"
    assert 1.0 > few.ssim_mean > many.ssim_mean > 0.3
    assert many.ssim_p5 < many.ssim_mean
    # A player that waits for less than the path takes shows nothing but black.
    [nothing] = measure(folder / "none", film, [0.001])[1]
    assert (nothing.on_time, nothing.decoded) == (0, 0)
    assert nothing.ssim_mean < many.ssim_mean


def test_one_missing_picture_is_the_last_one_again_and_the_others_are_untouched(
    folder: Path, tmp_path: Path
) -> None:
    # Of the second round the last picture in the order of showing that no other needs.
    whole = run(folder, "whole")
    film, _ = read_film(folder / "film.ts")
    frames = pl.read_parquet(whole / "frames.parquet")
    kinds = dict(zip(frames["frame"], frames["type"].cast(pl.String), strict=True))
    picture = next(one for one in film.pictures if kinds[film.frames + one.number] == "disposable")
    spoilt = tmp_path / "spoilt"
    shutil.copytree(whole, spoilt)
    lost = pl.col("frame") == film.frames + picture.number
    frames.with_columns(
        pl.when(lost).then(None).otherwise(pl.col(name)).alias(name)
        for name in ("latency_s", "decodable_s")
    ).write_parquet(spoilt / "frames.parquet")
    [one] = measure(spoilt, folder / "film.ts", [])[1]
    assert one.on_time == one.pictures - 1
    # One picture of them all differs, and shows its neighbour, which is much like it.
    shortfall = (1.0 - one.ssim_mean) * one.pictures
    assert 0.001 < shortfall < 0.7
    assert one.ssim_p5 == 1.0


def test_the_command_writes_a_table_json_and_a_file_and_says_what_it_cannot_tell(
    folder: Path,
) -> None:
    path = run(folder, "told")
    film = str(folder / "film.ts")
    done = CliRunner().invoke(
        app, ["quality", str(path), "--film", film, "--latency", "200 ms", "--json"]
    )
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert json.loads((path / "quality.json").read_text()) == told
    assert [one["player_latency_s"] for one in told["players"]] == [0.2]
    has_vmaf = told["vmaf"] == "measured"
    assert has_vmaf or told["vmaf"].startswith("undecided: ")
    assert (told["players"][0]["vmaf_mean"] is not None) is has_vmaf
    shown = CliRunner().invoke(app, ["quality", str(path), "--film", film])
    assert shown.exit_code == 0, shown.output
    assert "1.0000" in shown.stdout
    assert has_vmaf or "undecided" in shown.stdout


def test_what_cannot_be_compared_is_an_error_that_says_why(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    film = folder / "film.ts"
    made_up = run(
        folder, "made-up", 'flows.film.application={kind="media",generate={},latency=["200 ms"]}'
    )
    other = tmp_path / "film.ts"
    other.write_bytes(film.read_bytes()[: 188 * 200])
    whole = run(folder, "sound")
    for path, of, words in (
        (made_up, film, "is made up"),
        (tmp_path, film, "no complete run here: run.json"),
        (whole, other, "not the film of the flows `film`, or has changed since: "),
        (whole, tmp_path / "none.ts", "none.ts: the film cannot be read"),
        (whole, folder / "s.toml", "s.toml"),
    ):
        with pytest.raises((BadInputError, UnfitEnvironmentError), match=words):
            measure(path, of, [])
    for text in ("", "5", "0 s", "ten ms", "-3 s"):
        with pytest.raises(BadInputError, match="--latency"):
            seconds(text, "--latency")
    done = CliRunner().invoke(app, ["quality", str(made_up), "--film", str(film)])
    assert done.exit_code == 2
    monkeypatch.setenv("PATH", str(tmp_path))
    done = CliRunner().invoke(app, ["quality", str(whole), "--film", str(film)])
    assert (done.exit_code, "ffmpeg is not installed" in done.stderr) == (3, True)


def test_tables_of_frames_are_compared_frame_by_frame() -> None:
    table = "# codec h264\ntime_s,type,size_bytes,depends_on\n0.0,key,10,\n0.04,reference,5,0\n"
    assert difference(table, table.replace("0.04", "0.040000000")) is None
    told = difference(table, table.replace("reference,5", "reference,6"))
    assert told == "frame 1 is reference of 5 bytes at 0.04 s, that of the run reference of 6" + (
        " bytes at 0.04 s"
    )
    shorter = difference(table, "time_s,type,size_bytes,depends_on\n0.0,key,10,\n")
    assert shorter == "it has 2 frames, that of the run 1"
