"""The error that every reader raises: one sentence for the user, no traceback."""


class DataError(Exception):
    """The data are missing or invalid; the message names the file and says what to do."""


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or else its type: a quoted error must not turn one sentence into several."""
    return (str(error).splitlines() or [type(error).__name__])[0]
