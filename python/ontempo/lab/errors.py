"""Failures that a user can act on, each with the exit code of its kind."""

BAD_INPUT = 2
ENVIRONMENT = 3
INTERRUPTED = 130


class LabError(Exception):
    """A failure that is shown to the user as its message, without a traceback."""

    exit_code = ENVIRONMENT


class BadInputError(LabError):
    """The input is invalid: a file, an option, a value."""

    exit_code = BAD_INPUT


class UnfitEnvironmentError(LabError):
    """The machine prevents it: a full disk, a read-only folder, a missing program."""

    exit_code = ENVIRONMENT


class InterruptedStudyError(LabError):
    """The user stopped a study; finished cells stay in the store."""

    exit_code = INTERRUPTED

    def __init__(self, kept: int, planned: int) -> None:
        super().__init__(f"interrupted: {kept} of {planned} cells are kept")
        self.kept = kept
        self.planned = planned
