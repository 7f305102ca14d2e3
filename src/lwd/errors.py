"""What a user can get wrong, as one exception that the command line turns into one readable line."""

from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from typing import Any


class InputError(ValueError):
    """Something given to lwd is not usable; the message says what was given, what is allowed, what to write.

    argument: the name of the Python argument or setting to change, if one is to blame; the command line turns it into
    its own flag.
    """

    def __init__(self, message: str, argument: str = "") -> None:
        super().__init__(message)
        self.argument = argument


class SolveError(RuntimeError):
    """The ODE could not be integrated; the message says where it stopped and what to change."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A clause that lists the known names and, if one is close, suggests it."""
    known = list(known)
    close = get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"known: {', '.join(known)}{hint}"


def import_extra(module: str, extra: str, purpose: str) -> Any:
    """An optional package, or an error with the command that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise InputError(f"{purpose} needs {module}; install it with: pip install 'lwd[{extra}]'") from error
