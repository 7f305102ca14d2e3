"""Messages by the facts in them: tests say which name, number or file a message must hold, never how it is worded."""

import re


def says(*facts: object) -> re.Pattern[str]:
    """A pattern for texts that hold all these facts, each as a word of its own, in any order.

    A tuple stands for the facts in it. 3 is not found in 13, 0.3 or the name of pytest's folder.
    """
    flat = [one for fact in facts for one in (fact if isinstance(fact, tuple) else (fact,))]
    words = [rf"(?<!\w)(?<!\d\.)(?<!pytest-){re.escape(str(fact))}(?!\w)(?!\.\d)" for fact in flat]
    return re.compile("".join(f"(?=.*{word})" for word in words), re.DOTALL)
