"""Failures that a user can act on, each with the exit code of its kind."""

BAD_INPUT = 2
ENVIRONMENT = 3
INTERRUPTED = 130


class LabError(Exception):
    """A failure whose message is all that the user needs: no traceback."""

    exit_code = ENVIRONMENT


class BadInputError(LabError):
    """What was asked for cannot be done as asked."""

    exit_code = BAD_INPUT


class UnfitEnvironmentError(LabError):
    """The machine stands in the way: a full disk, a folder that cannot be written."""

    exit_code = ENVIRONMENT


class InterruptedStudyError(LabError):
    """The user stopped a study; what had finished is kept."""

    exit_code = INTERRUPTED

    def __init__(self, kept: int, planned: int) -> None:
        super().__init__(f"interrupted: {kept} of {planned} cells are kept")
        self.kept = kept
        self.planned = planned
