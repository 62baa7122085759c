"""The lab: studies, statistics, claims, and the report that judges them.

================  ===============================================================
`engine`          the interface of a simulator
`store`           finished cells on disk, named by a hash of their inputs
`cells`           the runs of a study, and the interface of a place that runs them
`study`           cells run once and stored; resumes after an interruption
`cores`           runs cells on this machine
`cluster`         runs cells on a Dask cluster
`recorded`        the tables that a scenario asks for
`sweep_file`      the study file
`sweep`           a grid, run until its intervals are narrow enough
`statistics`      intervals; `batches`: batch means
`claims`          published claims and how they are judged
`catalogue`       every published row, with code or without
`experiments`     finds the claims of a folder of experiments
`plots`           figures as data; `figure_html`, `figure_pdf`: drawn
`report`          content of the report; `report_pages`, `report_parts`: the pages
`differences`     the differences as Markdown
`main`            the command ``ontempo-lab``
================  ===============================================================
"""

from importlib.util import find_spec

_missing = [name for name in ("polars", "plotly", "typer", "rich") if find_spec(name) is None]
if _missing:
    raise ModuleNotFoundError(
        f"ontempo.lab needs {', '.join(_missing)}: pip install 'ontempo[lab]'", name=_missing[0]
    )
