"""Tables for the terminal that are no wider than it, as far as names and values allow."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

SHORT = 12
"""A heading of so many columns is not broken."""


def shown(text: str) -> Text:
    """A name or value of a study's as a terminal may show it: without control characters."""
    return Text(
        "".join(
            one if one.isprintable() or one == "\n" else "\N{REPLACEMENT CHARACTER}" for one in text
        )
    )


@dataclass(frozen=True)
class Column:
    """A heading, and the cells below it.

    `is_axis`: they say what a row is of; `right`: they stand at the right edge, as numbers do.
    """

    name: str
    cells: Sequence[Text]
    is_axis: bool = False
    right: bool = False

    def broken(self) -> "Column":
        """The same with a heading of several lines, as narrow as its longest part and the cells."""
        parts = re.split(r"(?<=[._ -])", self.name)
        least = min(cell_len(self.name), SHORT)
        width = max(least, *map(cell_len, [*parts, *(cell.plain for cell in self.cells)]))
        lines = [""]
        for part in parts:
            if cell_len(lines[-1] + part) <= width:
                lines[-1] += part
            else:
                lines.append(part)
        return replace(self, name="\n".join(line for line in lines if line))


def fitting(axes: Sequence[Column], values: Sequence[Column], console: Console) -> list[Table]:
    """One table of all columns, or several.

    Where one row for all is too wide, headings are broken behind dots and underscores; columns that
    still do not fit follow in tables of their own, again with the axes.
    """
    if _fits(whole := _table([*axes, *values]), console):
        return [whole]
    axes, values = [one.broken() for one in axes], [one.broken() for one in values]
    blocks = [values[:1]]
    for column in values[1:]:
        if _fits(_table([*axes, *blocks[-1], column]), console):
            blocks[-1].append(column)
        else:
            blocks.append([column])
    return [_table([*axes, *block]) for block in blocks]


def print_fitting(axes: Sequence[Column], values: Sequence[Column], console: Console) -> None:
    """Print these tables, with an empty line between two."""
    for place, table in enumerate(fitting(axes, values, console)):
        if place:
            console.print()
        console.print(table)


def _table(columns: Sequence[Column]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        if column.is_axis:
            justify: JustifyMethod = "right" if column.right else "left"
            table.add_column(shown(column.name), overflow="fold", justify=justify)
        else:
            table.add_column(shown(column.name), justify="right", no_wrap=True)
    for row in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*row)
    return table


def _fits(table: Table, console: Console) -> bool:
    unbounded = console.options.update(width=1_000_000)
    return console.measure(table, options=unbounded).maximum <= console.width
