"""The documentation becomes a site: every page in its menu, every link to a page or a source."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(240)
def test_the_site_has_every_page_and_no_link_that_leads_nowhere(tmp_path: Path) -> None:
    # `--strict`: a link or an anchor that is not there, and a page in no menu, are errors.
    command = [sys.executable, "-W", "ignore", "-m", "mkdocs", "build", "--strict"]
    done = subprocess.run(
        [*command, "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "mechanisms" / "links.html").read_text("utf-8")
    assert "../source/crates/network/src/link.rs.html" in page
    assert "pub struct" in (tmp_path / "source/crates/network/src/link.rs.html").read_text("utf-8")
    # Nothing is loaded from others.
    assert "unpkg.com" not in page
    assert "googleapis" not in page
    text = json.loads((tmp_path / "search" / "search_index.json").read_text("utf-8"))["docs"]
    assert any("drop-tail" in one["text"] for one in text)
