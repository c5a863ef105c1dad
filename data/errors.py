"""What a reader raises when it cannot give the data: one sentence for the user, no traceback."""


class DataError(Exception):
    """The data cannot be had or are not what they should be; the message says which file and what to do."""
