"""The notebook of the documentation runs from top to bottom, and shows what it prints.

With ``ONTEMPO_UPDATE_DOCS=1`` (as in ``make docs``) its outputs are rewritten.
"""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

nbformat: Any = pytest.importorskip("nbformat")
nbclient: Any = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("matplotlib")

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "notebooks" / "first-study.ipynb"


@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("ignore")  # warnings of the kernel's libraries
def test_the_first_study_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    shown = [texts(cell) for cell in notebook.cells]
    client = nbclient.NotebookClient(notebook, timeout=90, kernel_name="python3")
    client.execute(cwd=str(tmp_path))
    if os.environ.get("ONTEMPO_UPDATE_DOCS"):
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)  # time stamps
        nbformat.write(notebook, NOTEBOOK)
    else:
        assert [texts(cell) for cell in notebook.cells] == shown, "run `make docs`"


def texts(cell: Any) -> list[str]:
    """The text output of a cell; pictures depend on fonts."""
    outputs = cell.get("outputs", [])
    printed = [one["text"] for one in outputs if one["output_type"] == "stream"]
    values = [one["data"].get("text/plain", "") for one in outputs if "data" in one]
    return [*printed, *(value for value in values if "<Figure" not in value)]
