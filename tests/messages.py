"""Messages by the facts in them: tests say which name, number or file a message must hold, never how it is worded."""

import re
from collections.abc import Sequence

from lwd.cli import main


def says(*facts: object) -> re.Pattern[str]:
    """A pattern for texts that hold all these facts, each as a word of its own, in any order.

    A tuple stands for the facts in it. 3 is not found in 13, 0.3 or the name of pytest's folder.
    """
    flat = [one for fact in facts for one in (fact if isinstance(fact, tuple) else (fact,))]
    return re.compile("".join(f"(?=.*{_word(str(fact))})" for fact in flat), re.DOTALL)


def _word(fact: str) -> str:
    before = r"(?<!\w)(?<!\d\.)(?<!pytest-)" if fact[0].isdigit() else r"(?<!\w)"
    after = r"(?!\w)(?!\.\d)" if fact[-1].isdigit() else r"(?!\w)"
    return f"{before}{re.escape(fact)}{after}"


def exit_code(arguments: Sequence[str]) -> int:
    """Of `lwd`, whether it is argparse or the library that refuses."""
    try:
        return main([str(argument) for argument in arguments])
    except SystemExit as stop:
        return int(stop.code or 0)
