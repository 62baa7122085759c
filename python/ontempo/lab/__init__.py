"""The lab: studies, statistics, claims, and the report that judges them.

================  ===============================================================
`engine`          what the lab asks of a simulator
`store`           finished cells on disk, under a hash of what produced them
`cells`           what a study is made of, and what a place that runs it must do
`study`           cells run once and kept, resumed where they stopped
`cores`           the place that is this machine
`cluster`         the place that is a Dask cluster
`sweep_file`      the study file
`sweep`           a grid, run until its intervals are narrow enough
`statistics`      intervals; `batches`: batch means
`claims`          published claims and how they are judged
`catalogue`       every published row, with code or without
`experiments`     finds the claims of a folder of experiments
`plots`           figures as data; `figure_html`, `figure_pdf`: drawn
`report`          what the pages show; `report_pages`, `report_parts`: the pages
`differences`     what differs, as Markdown
`main`            the command ``ontempo-lab``
================  ===============================================================
"""

from importlib.util import find_spec

_missing = [name for name in ("polars", "plotly", "typer", "rich") if find_spec(name) is None]
if _missing:
    raise ModuleNotFoundError(
        f"ontempo.lab needs {', '.join(_missing)}: pip install 'ontempo[lab]'", name=_missing[0]
    )
