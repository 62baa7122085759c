"""The command ``ontempo-lab``."""

import os
import shlex
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from ontempo.lab import reproducing
from ontempo.lab.arena.command import read_worlds as read_arena_worlds
from ontempo.lab.arena.command import run_arena
from ontempo.lab.arena.demo import run_demo
from ontempo.lab.catalogue import listings, load_rows
from ontempo.lab.claims import Scale
from ontempo.lab.compare_command import run_compare
from ontempo.lab.differences import differences
from ontempo.lab.engine import Engine, NativeEngine
from ontempo.lab.errors import BadInputError
from ontempo.lab.experiments import choose, find_folder, load_papers
from ontempo.lab.figure_pdf import write_figures
from ontempo.lab.folder import require_replaceable, write_text
from ontempo.lab.kept import read_kept
from ontempo.lab.quality_command import run_quality
from ontempo.lab.readings import EVERY, requested, under, with_seeds
from ontempo.lab.report import Report
from ontempo.lab.report_pages import is_report, write_report
from ontempo.lab.sweep_command import print_plan, run_sweep
from ontempo.lab.terminal import exit_codes
from ontempo.lab.verdict_file import verdict_text
from ontempo.lab.verdicts_output import print_verdicts
from ontempo.lab.worlds import hindrances, in_worlds, read_worlds

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def about() -> None:
    """Run studies, and check published claims against their results.

    [dim]Example:[/]  ontempo-lab reproduce --quick --only pert/fig9
    """


CORES = os.cpu_count() or 1

Jobs = Annotated[
    int, typer.Option(min=1, help="Cells to run at a time.", show_default="one a core")
]
Dask = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="Run on a Dask cluster: a scheduler's address, or [bold]local[/]."
    ),
]


@app.command()
def reproduce(
    quick: Annotated[
        bool, typer.Option("--quick/--full", help="A reduced grid, or every published cell.")
    ] = True,
    only: Annotated[
        list[str] | None,
        typer.Option(help="A claim (pert/fig9) or a paper (pert); may be repeated."),
    ] = None,
    reading: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A reading to run that runs on request only, or [bold]all[/]; may be repeated.",
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1, help="Of each claim's seeds run only the first so many.", show_default="all"
        ),
    ] = None,
    show_list: Annotated[
        bool, typer.Option("--list", help="List the claims and their cells; run nothing.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for finished cells and the report.")] = Path(
        "out/reproduce"
    ),
    worlds: Annotated[
        str | None,
        typer.Option(
            metavar="WORLD,WORLD",
            help="Worlds to check claims in. Emulation needs root and runs in real time.",
            show_default="analysis,simulation",
        ),
    ] = None,
    jobs: Jobs = CORES,
    dask: Dask = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print verdicts and checks as JSON on stdout.")
    ] = False,
    open_report: Annotated[
        bool | None,
        typer.Option(
            "--open/--no-open", help="Open the report in a browser.", show_default="on a terminal"
        ),
    ] = None,
    pdf: Annotated[
        bool, typer.Option("--pdf", help="Also write each figure as PDF, sized for a paper.")
    ] = False,
    differences_to: Annotated[
        Path | None,
        typer.Option("--differences", help="Write the differences and their causes as Markdown."),
    ] = None,
    write_verdicts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the verdict of each computed check, one a line; runs every reading.",
        ),
    ] = None,
    check_verdicts: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Compare with such a file; fail if a line differs."),
    ] = None,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep", help="With --full: keep what was found beside the claims, for every report."
        ),
    ] = False,
    bind_causes: Annotated[
        bool,
        typer.Option(
            "--bind-causes",
            help="Bind unbound causes to the measured values: known.toml of each paper.",
        ),
    ] = False,
    experiments: Annotated[
        Path | None,
        typer.Option(help="The folder of experiments.", show_default="this checkout's"),
    ] = None,
) -> None:
    """Run the cells that the claims need, judge the claims, and write a report in HTML.

    Finished cells are stored: an interrupted study resumes, an unchanged one is not run again.

    [dim]Examples:[/]

      ontempo-lab reproduce --quick

      ontempo-lab reproduce --full --only pert/fig9 --only pert/fig12 --jobs 8

      ontempo-lab reproduce --only pert --json --no-open > verdicts.json

      ontempo-lab reproduce --only pert/fig9 --pdf --dask local

      ontempo-lab reproduce --full --only psp --keep

      ontempo-lab reproduce --full --seeds 4 --only pert/fig12

      ontempo-lab reproduce --only pert/fig9 --reading "every ACK"

      sudo ontempo-lab reproduce --worlds simulation,emulation --only pert
    """
    scale: Scale = "quick" if quick else "full"
    runs = [EVERY] if bind_causes or write_verdicts else reading or []
    # The report names it with each claim.
    command = _command(
        "reproduce",
        f"--{scale}",
        out=None if out == Path("out/reproduce") else out,
        worlds=worlds and worlds.replace(" ", ""),
        seeds=seeds,
        reading=runs,
    )
    again = _command(
        *shlex.split(command)[1:],
        only=only,
        jobs=_jobs(jobs),
        dask=dask,
        json=as_json,
        pdf=pdf,
        differences=differences_to,
        write_verdicts=write_verdicts,
        check_verdicts=check_verdicts,
        keep=keep,
        bind_causes=bind_causes,
        experiments=experiments,
    )
    with exit_codes(again):
        of_quick = bool(bind_causes or write_verdicts or check_verdicts)
        reproducing.check_options(
            scale, only or [], reading or [], seeds, of_quick=of_quick, keep=keep
        )
        if only and write_verdicts:
            raise BadInputError("--write-verdicts: the file holds all claims: omit --only")
        folder = find_folder(experiments)
        papers = requested(load_papers(folder), runs)
        every = listings(load_rows(folder), papers)
        claims = choose(papers, only or [], [entry.id for one in every for entry in one.entries])
        claims = [with_seeds(claim, seeds) for claim in claims] if seeds else claims
        if worlds is not None or not show_list:
            claims = in_worlds(claims, read_worlds(worlds), only or [])
        readings = {paper.name: paper.readings for paper in papers}
        if show_list:
            reproducing.list_claims(claims, readings, scale, as_json=as_json)
            return
        require_replaceable(out / "report", is_report)
        engine = make_engine()
        hindered = hindrances({claim.id: claim.cells(scale) for claim in claims})
        every_claim = [
            (claim, under(claim, readings[claim.paper]))
            for claim in claims
            if claim.id not in hindered
        ]
        ran = reproducing.run(engine, every_claim, scale, out, jobs, dask)
        if bind_causes:
            reproducing.bind(folder, ran.judged)
        judged = reproducing.with_causes(folder, ran.judged)
        if keep:
            reproducing.keep(folder, only or [], judged, ran, seeds)
        report = Report(
            scale,
            command,
            every,
            judged,
            ran.engine,
            ran.cells,
            hindered,
            {} if scale == "full" else read_kept(folder),
        )
        path = write_report(report, out / "report")
        if pdf:
            drawn = {judged.claim.id: judged.finding.figures for judged in judged}
            written = write_figures(drawn, out / "figures")
            print(f"{len(written)} figures: {out / 'figures'}", file=sys.stderr)
        if differences_to:
            write_text(differences_to, differences(report, folder))
        if write_verdicts:
            write_text(write_verdicts, verdict_text(judged))
        print_verdicts(report, path, as_json=as_json)
        if check_verdicts:
            reproducing.compare(check_verdicts, judged)
        if open_report or (open_report is None and sys.stdout.isatty()):
            webbrowser.open(path.resolve().as_uri())


@app.command()
def sweep(
    study: Annotated[Path, typer.Argument(help="The study file; its format: docs/studies.md.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for cells and results.", show_default="out/sweep/STUDY"),
    ] = None,
    jobs: Jobs = CORES,
    dask: Dask = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check the study and print what it would run; run nothing."),
    ] = False,
    any_size: Annotated[
        bool,
        typer.Option(
            "--any-size",
            help="Run it even if it is estimated to take more memory than is free, or a run more"
            " than a day.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print results as JSON on stdout.")
    ] = False,
) -> None:
    """Run a scenario over a grid of values and seeds; write results as Parquet.

    Finished cells are stored: an interrupted study resumes, an extended one runs only new cells.
    Results are the same on one core, on many, and on a cluster.

    [dim]Examples:[/]

      ontempo-lab sweep study.toml

      ontempo-lab sweep study.toml --jobs 8 --json > results.json

      ontempo-lab sweep study.toml --dask tcp://scheduler:8786
    """
    options = {"jobs": _jobs(jobs), "dask": dask, "any_size": any_size, "json": as_json}
    with exit_codes(_command("sweep", study, out=out, **options)):
        if dry_run:
            print_plan(make_engine(), study)
        else:
            run_sweep(make_engine(), study, out, jobs, dask, any_size=any_size, as_json=as_json)


@app.command()
def compare(
    scenario: Annotated[Path, typer.Argument(help="The scenario file.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the runs and the page.", show_default="out/compare/SCENARIO"),
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY.KEY=VALUE", help="Set a value; may be repeated."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of both runs.")] = None,
    ipv6: Annotated[bool, typer.Option("--ipv6", help="Emulate over IPv6.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print differences as JSON on stdout.")
    ] = False,
    open_page: Annotated[
        bool | None,
        typer.Option(
            "--open/--no-open", help="Open the page in a browser.", show_default="on a terminal"
        ),
    ] = None,
) -> None:
    """Simulate a scenario and emulate it; plot both on the same axes.

    Emulation needs root and takes as long as the scenario.

    [dim]Example:[/]  sudo ontempo-lab compare dumbbell.toml
    """
    folder = out or Path("out/compare") / scenario.stem
    again = _command("compare", scenario, out=out, set=sets, seed=seed, ipv6=ipv6, json=as_json)
    with exit_codes(again):
        options = [word for text in sets or [] for word in ("--set", text)]
        options += [] if seed is None else ["--seed", str(seed)]
        only_emulated = ["--ipv6"] if ipv6 else []
        path = run_compare(
            scenario, folder, options, only_emulated, as_json=as_json, is_named=out is not None
        )
        if open_page or (open_page is None and sys.stdout.isatty()):
            webbrowser.open(path.resolve().as_uri())


@app.command()
def quality(
    run: Annotated[Path, typer.Argument(help="The folder of a run with a film from a file.")],
    film: Annotated[Path, typer.Option(help="The film's transport stream, as it was simulated.")],
    latency: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TIME",
            help="A player's latency, such as [bold]510 ms[/]; may be repeated.",
            show_default="those of the scenario",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Compare what viewers of a run's film see with the film: SSIM, and VMAF if ffmpeg has it.

    Pictures that a player cannot decode on time are taken out of the film, and ffmpeg decodes the
    rest: where one is missing, the last one stands still. Writes quality.json into the run.

    [dim]Example:[/]  ontempo-lab quality run --film film.ts --latency "200 ms"
    """
    with exit_codes(_command("quality", run, film=film, latency=latency, json=as_json)):
        run_quality(run, film, latency or [], as_json=as_json)


@app.command()
def arena(
    quick: Annotated[
        bool, typer.Option("--quick/--full", help="A reduced grid, or every path.")
    ] = True,
    worlds: Annotated[
        str,
        typer.Option(
            metavar="WORLD,WORLD",
            help="simulation, emulation or both. Emulation needs root and runs real programs in"
            " real time, over twelve of the paths.",
        ),
    ] = "simulation",
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="A class (outage), path (outage/1s-100ms), film (vbr-50) or contender (srt), with"
            " * and ?; may be repeated.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for finished cells and results.")] = Path(
        "out/arena"
    ),
    jobs: Jobs = CORES,
    page: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write the arena's part of this Markdown page."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print results as JSON on stdout.")
    ] = False,
    open_page: Annotated[
        bool | None,
        typer.Option(
            "--open/--no-open", help="Open the page in a browser.", show_default="on a terminal"
        ),
    ] = None,
) -> None:
    """Carry films over many paths by each transport: which delivers them on time?

    Finished cells are stored: an interrupted arena resumes, an unchanged one is not run again.

    [dim]Examples:[/]

      ontempo-lab arena --quick

      ontempo-lab arena --full --only profiles --only srt --only ontempo

      sudo ontempo-lab arena --worlds emulation
    """
    scale: Scale = "quick" if quick else "full"
    options = {"only": only, "jobs": _jobs(jobs), "page": page, "json": as_json}
    with exit_codes(_command("arena", f"--{scale}", worlds=worlds, out=out, **options)):
        asked = read_arena_worlds(worlds)
        path = run_arena(make_engine(), scale, asked, only or [], out, jobs, page, as_json=as_json)
        _show_page(path, open_page)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for finished cells and results.")] = Path(
        "out/demo"
    ),
    jobs: Jobs = CORES,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print results as JSON on stdout.")
    ] = False,
    open_page: Annotated[
        bool | None,
        typer.Option(
            "--open/--no-open", help="Open the page in a browser.", show_default="on a terminal"
        ),
    ] = None,
) -> None:
    """Carry one film over five networks by six transports, with three buffers; show a page.

    [dim]Example:[/]  ontempo-lab demo
    """
    with exit_codes(_command("demo", out=out, jobs=_jobs(jobs), json=as_json)):
        _show_page(run_demo(make_engine(), out, jobs, as_json=as_json), open_page)


_Option = Path | str | int | list[str] | bool | None


def _command(*words: Path | str, **options: _Option) -> str:
    """The command ``ontempo-lab`` with those of these options that are given, for a shell."""
    found = ["ontempo-lab", *map(str, words)]
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            found.append(option)
        elif isinstance(value, list):
            found += [word for one in value for word in (option, one)]
        elif value is not None and value is not False:
            found += [option, str(value)]
    return shlex.join(found)


def _jobs(jobs: int) -> int | None:
    return None if jobs == CORES else jobs


def _show_page(path: Path, open_page: bool | None) -> None:
    """Open a page in a browser, if that is asked for or the output is a terminal."""
    if open_page or (open_page is None and sys.stdout.isatty()):
        webbrowser.open(path.resolve().as_uri())


def make_engine() -> Engine:
    """The simulator that studies run on."""
    return NativeEngine()


if __name__ == "__main__":
    app()
