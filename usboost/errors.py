"""The one exception that usboost raises for a person's mistake."""


class UsboostError(ValueError):
    """An input, file or parameter that usboost cannot work with.

    The message is one sentence that names the file, column or key and what to do. It is also
    a ``ValueError``, so code written for scikit-learn catches it.

    Examples
    --------
    >>> from usboost import Table
    >>> Table.from_numeric([1.0, 2.0])
    Traceback (most recent call last):
    usboost.errors.UsboostError: a numeric view needs two dimensions (rows, columns), not 1
    """


class Unsuited(UsboostError):
    """A model cannot be fitted to these rows on this computer; others may be."""
