"""Hostile values and mutations of JSON trees; every choice comes from the random generator that is passed in."""

import json
from random import Random
from typing import Any

NUMBERS = (
    *(0, -1, 1, 2, 255, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30, 10**400),
    *(0.5, -0.5, 1e-9, 1e-300, 5e-324, 1e6, 1e38, 1e39, 1e300, float("nan"), float("inf"), float("-inf"), -0.0),
)
TEXTS = (
    *("", " ", "x", "0", "1e9", "null", "none", ".", "..", "/", "~", "-", "\0", "\n", "a\nb", "\r\n", "\t", "'", '"'),
    *("../../../../etc/passwd", "/etc/passwd", "/dev/zero", "a/b", "a\\b", "..\\x", ".hidden", "texture", "semantic"),
    *(
        "\ud800",
        "\udfff\ud800",
        "\u202egnp.exe",
        "é",
        "🙂" * 9,
        "x" * 300,
        "x" * 70_000,
        "%s%n",
        "{0}",
        "$(id)",
        "__class__",
    ),
    *("synchronous", "offset:0.3", "offset:nan", "polynomial:99999999", "XL/1", "cpu", "cuda:7", "F32", "F64", "I64"),
    *("F8_E4M3", "BOOL", "float32", "1_000", "2001-99-99", "0x", "1e400", "true", "on", "=", "<<", "*a", "&a 1"),
)


def number(rng: Random) -> Any:
    """A number that something may not expect."""
    return rng.choice(NUMBERS) if rng.random() < 0.8 else rng.choice((-1, 1)) * 10.0 ** rng.uniform(-320, 308)


def value(rng: Random, depth: int = 2) -> Any:
    """Any JSON value."""
    kind = rng.randrange(10 if depth else 6)
    if kind < 3:
        return number(rng)
    if kind < 5:
        return rng.choice(TEXTS)
    if kind == 5:
        return rng.choice((None, True, False, [], {}, [[]], [{}], {"": {}}))
    if kind < 8:
        return [value(rng, depth - 1) for _ in range(rng.choice((1, 2, 3, 5, 40)))]
    return {rng.choice(TEXTS): value(rng, depth - 1) for _ in range(rng.randint(1, 3))}


def places(tree: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all nodes of a tree."""
    found = [here]
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, child in items:
        found += places(child, (*here, key))
    return found


def at(tree: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        tree = tree[key]
    return tree


def put(tree: Any, place: tuple[Any, ...], new: Any) -> Any:
    """The tree with another node at a place; the tree itself is changed."""
    if not place:
        return new
    at(tree, place[:-1])[place[-1]] = new
    return tree


def change(tree: Any, rng: Random) -> Any:
    """Replace, remove, add, wrap, repeat or swap nodes of a JSON tree (which is changed)."""
    inside = [place for place in places(tree) if place]
    if not inside or rng.random() < 0.03:
        return value(rng)
    place = rng.choice(inside)
    old, parent = at(tree, place), at(tree, place[:-1])
    kind = rng.randrange(12)
    if kind < 3:
        return put(tree, place, value(rng))
    if kind == 3:
        return put(tree, place, number(rng))
    if kind == 4:
        return put(tree, place, rng.choice(TEXTS))
    if kind == 5:
        del parent[place[-1]]
    elif kind == 6:
        parent.update({rng.choice(TEXTS): value(rng)}) if isinstance(parent, dict) else parent.append(value(rng))
    elif kind == 7:
        put(tree, place, rng.choice(([old], {"": old}, [old] * 3, str(old), [])))
    elif kind == 8 and isinstance(old, int | float) and not isinstance(old, bool):
        put(tree, place, rng.choice((-old, old + 1, old - 1, old * 2, old * 1e9, float(old), old / 3, str(old))))
    elif kind == 9 and isinstance(old, list):
        put(tree, place, rng.choice((old[::-1], old[:-1], old + old[-1:], old * 500, old[:1])))
    elif kind == 10 and isinstance(parent, dict):  # another name for the same value, in the same position
        renamed = {(rng.choice(TEXTS) if key == place[-1] else key): child for key, child in parent.items()}
        parent.clear()
        parent.update(renamed)
    else:
        other = rng.choice(inside)
        if place[: len(other)] != other and other[: len(place)] != place:
            theirs = at(tree, other)
            put(tree, place, theirs)
            put(tree, other, old)
    return tree


def text_of(tree: Any) -> bytes:
    """As JSON with NaN, infinity and lone surrogates, which Python writes and reads."""
    return json.dumps(tree, default=str).encode()


def change_json(content: bytes, rng: Random) -> bytes:
    """Mutate a JSON document: mostly its tree, sometimes its text (duplicate keys, deep nesting, odd literals)."""
    try:
        tree = json.loads(content)
    except (ValueError, RecursionError):
        return content + b"}"
    kind = rng.randrange(10)
    if kind < 7:
        return text_of(change(tree, rng))
    if kind == 7 and isinstance(tree, dict) and tree:  # a key twice: the last one counts
        key = rng.choice(list(tree))
        return text_of(tree)[:-1] + b"," + text_of(key) + b":" + text_of(value(rng)) + b"}"
    if kind == 8:
        place, deep = rng.choice(places(tree)), rng.choice((500, 5_000, 200_000))
        left, right = rng.choice((("[", "]"), ('{"a":', "}")))
        closed = rng.choice((left * deep + "0" + right * deep, left * deep))
        return text_of(put(tree, place, "DEEP")).replace(b'"DEEP"', closed.encode())
    literal = rng.choice(
        (b"1" * 5_000, b"1e999999", b"-", b"01", b"0x10", b"'a'", b"NaN", b"-Infinity", b"/*", b"\xff")
    )
    return text_of(put(tree, rng.choice(places(tree)), "ODD")).replace(b'"ODD"', literal)
