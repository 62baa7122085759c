"""Section II.B.4: what both ends agree on if they request different rates."""

import polars as pl

from ontempo.lab.claims import Check, Claim, Finding, World
from ontempo.lab.real_time import MACHINE, circumstances
from ontempo.lab.study import Results

from ..agreement import PEAK_RATES, agreement_cells

LESS = f"{min(PEAK_RATES.values())} messages/s"


def judge(results: Results) -> Finding:
    """The smaller rate if it is coerced; else a refusal with its reason."""
    table = results.table("agreements")
    coerced, firm = table.filter(pl.col("coerced")), table.filter(~pl.col("coerced"))

    def values(column: str, rows: pl.DataFrame) -> str:
        each = rows.select("end", column).iter_rows()
        return "; ".join(f"{end}: {value}" for end, value in each)

    reasons = [str(text) for text in firm["told"]]
    refused = not any(firm["reserved"]) and all("peak_rate" in text for text in reasons)
    checks = [
        _of_both(
            "Coerced: both ends learn the smaller rate, 60 of 64 and 60 kilobytes a second.",
            "60",
            values("agreed", coerced),
            coerced,
            list(coerced["agreed"]) == [LESS, LESS],
        ),
        _of_both(
            "Coerced: the network reserves, and both ends are told.",
            "reserved",
            values("told", coerced),
            coerced,
            all(coerced["reserved"]) and all("controlled load" in text for text in coerced["told"]),
        ),
        _of_both(
            "Not coerced: nothing is reserved, and both ends are told why.",
            "may fail",
            values("told", firm),
            firm,
            refused,
        ),
    ]
    notes = [
        circumstances(results.table(MACHINE)),
        "Peak rates of messages of 1,000 bytes, from ws1 to ws0 of the testbed. Whether it is"
        " reserved is what tc shows at the slow link.",
    ]
    return Finding([], checks, notes)


def _of_both(sentence: str, published: str, text: str, rows: pl.DataFrame, ok: bool) -> Check:
    """A check of the values of both ends; undecided if one is missing."""
    missing = [end for end in PEAK_RATES if end not in rows["end"].to_list()]
    if missing:
        text = "; ".join(filter(None, [text, f"nothing of the {' and the '.join(missing)}"]))
    return Check(sentence, published, text, None if missing else ok)


CLAIM = Claim(
    id="qosockets/coercion",
    title="Different rates asked for, coerced and not",
    world=World.EMULATION,
    published="Where sender and receiver ask for 64 and 60 kilobytes a second and coerce, both"
    " are told of 60. Where nothing is coerced, the allocation may fail.",
    expectation="Both learn 60; not coerced, the reservation is refused, and says why.",
    cells=lambda _scale: agreement_cells(),
    judge=judge,
    scaling=lambda _scale: "One run of each, as in the paper's example.",
)
