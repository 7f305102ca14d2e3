"""Errors that a user can fix; the command line prints each as one line."""

from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from typing import Any

LONGEST = 3000


def one_line(text: str) -> str:
    """Escape line breaks, terminal codes and lone surrogates; shorten what is too long to read."""
    if len(text) > LONGEST:
        text = f"{text[: LONGEST - 220]} ... {text[-200:]}"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class InputError(ValueError):
    """An input is invalid; the message says what was given, what is allowed and what to do.

    argument: the Python argument or setting to change, if there is one; the command line replaces it with its flag.
    A message is one line of at most LONGEST characters, whatever names and values from a file it quotes.
    """

    def __init__(self, message: str, argument: str = "") -> None:
        super().__init__(one_line(message))
        self.argument = argument


class SolveError(RuntimeError):
    """The ODE could not be integrated; the message says where it stopped and what to change."""


def nearest(name: str, known: Iterable[str]) -> str:
    """List the known names and suggest the closest one, as a clause for an error message."""
    known = list(known)
    close = get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"known: {', '.join(known)}{hint}"


def import_extra(module: str, extra: str, purpose: str) -> Any:
    """Import an optional package, or raise an error with the command that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise InputError(f"{purpose} needs {module}; install it with: pip install 'lwd[{extra}]'") from error
