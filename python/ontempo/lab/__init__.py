"""The lab: studies, statistics, claims, and the report that judges them.

==============  =================================================================
`engine`        what the lab asks of a simulator
`store`         finished cells on disk, under a hash of what produced them
`study`         a grid of cells run on every core, resumed where it stopped
`statistics`    intervals
`claims`        published claims and how they are judged
`plots`         figures, in the report's own style
`report`        one HTML file
`experiments`   finds the claims of a folder of experiments
`main`          the command ``ontempo-lab``
==============  =================================================================
"""

from importlib.util import find_spec

_missing = [name for name in ("polars", "plotly", "typer", "rich") if find_spec(name) is None]
if _missing:
    raise ModuleNotFoundError(
        f"ontempo.lab needs {', '.join(_missing)}: pip install 'ontempo[lab]'", name=_missing[0]
    )
