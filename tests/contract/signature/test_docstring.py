"""Descriptions are read from numpy, Google and Sphinx docstrings alike."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nbtools.contract.signature.docstring import description, parameter_texts


def numpy_style(path: str, limit: int = 10, *, x: float, y: float) -> None:
    """Read a file.

    Lines end where the file says so;
    the last may be incomplete.

    Parameters
    ----------
    path : str
        Absolute, or relative to
        the working folder.
    limit
        Lines at the most: 1 to 100.
    x, y
        Place in centimetres.

    Returns
    -------
    dict
        Not of interest here.

    Examples
    --------
    >>> numpy_style("a", x=1, y=2)
    """


def google_style(path: str, limit: int = 10, *, x: float, y: float) -> None:
    """Read a file.

    Lines end where the file says so;
    the last may be incomplete.

    Args:
        path (str): Absolute, or relative to
            the working folder.
        limit: Lines at the most: 1 to 100.
        x (float): Place in centimetres.
        y (float): Place in centimetres.

    Returns:
        dict: Not of interest here.
    """


def sphinx_style(path: str, limit: int = 10, *, x: float, y: float) -> None:
    """Read a file.

    Lines end where the file says so;
    the last may be incomplete.

    :param path: Absolute, or relative to
        the working folder.
    :type path: str
    :param int limit: Lines at the most: 1 to 100.
    :param x: Place in centimetres.
    :param y: Place in centimetres.
    :returns: Not of interest here.
    """


@pytest.mark.parametrize("function", [numpy_style, google_style, sphinx_style])
def test_every_style_gives_the_same_texts(function: Callable[..., None]) -> None:
    assert parameter_texts(function) == {
        "path": "Absolute, or relative to the working folder.",
        "limit": "Lines at the most: 1 to 100.",
        "x": "Place in centimetres.",
        "y": "Place in centimetres.",
    }
    whole = "Read a file.\n\nLines end where the file says so;\nthe last may be incomplete."
    assert description(function) == whole


def test_a_function_without_docstring_is_described_by_its_name() -> None:
    def count_the_lines(path: str) -> None: ...

    assert description(count_the_lines) == "count the lines"
    assert parameter_texts(count_the_lines) == {}


def test_one_line_is_enough() -> None:
    def shout(text: str) -> None:
        """Say it loudly."""

    assert (description(shout), parameter_texts(shout)) == ("Say it loudly.", {})


def test_parameters_without_a_text_are_left_out() -> None:
    def shout(text: str, times: int) -> None:
        """Say it loudly.

        Parameters
        ----------
        text
        times
            How often.
        """

    assert parameter_texts(shout) == {"times": "How often."}
