"""Figures on a narrow terminal: in tables of their own rather than cut off."""

from collections.abc import Sequence
from io import StringIO

from rich.console import Console

from ontempo.lab import compare_command, quality_command
from ontempo.lab.compare import Comparison, Difference
from ontempo.lab.narrow import Column, print_fitting
from ontempo.lab.quality import Quality

Columns = tuple[Sequence[Column], Sequence[Column]]


def printed(columns: Columns, width: int) -> str:
    """What a terminal of this width shows."""
    console = Console(file=StringIO(), width=width, highlight=False)
    print_fitting(*columns, console)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_no_figure_of_a_films_quality_is_cut_off() -> None:
    one = Quality("film", 0, 0.3, 12697, 12000, 1, 0, 12000, 12000, 0.9017, 0.7192, None)
    columns = quality_command.columns([one])
    assert len(printed(columns, 80).splitlines()) == 2
    narrow = printed(columns, 40)
    for figure in ("film.0", "300 ms", "12697", "94.51 %", "0.9017", "0.7192", "undecided"):
        assert figure in narrow
    assert max(map(len, narrow.splitlines())) <= 40


def test_no_figure_of_a_comparison_is_cut_off() -> None:
    one = Difference("video", "goodput, Mbit/s", 12.3456, 11.2345)
    narrow = printed(compare_command.columns(Comparison("", [one], [])), 40)
    for figure in ("goodput,", "Mbit/s", "12.35", "11.23", "-9.0"):
        assert figure in narrow
    assert max(map(len, narrow.splitlines())) <= 40
