"""Commands that users are advised to run, quoted so that a shell runs only the command.

Names come from clients, which may call a transactional id `x; rm -rf ~` or `--prefix=a`.
`tests/tidy/test_advice.py` finds texts with a command that was not created by this module.
"""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,:;/@%+=_-()[]")

CONNECTING = frozenset({"txn", "why", "group", "topic", "produce", "consume"})
OF_A_DIRECTORY = frozenset({
    "ps", "env", "doctor", "logs", "down", "kill", "stop", "start", "restart", "pause", "resume",
    "partition", "slow", "heal",
})  # fmt: skip
_given: list[dict[str, object]] = []  # of the command that runs


@contextmanager
def one_command() -> Iterator[None]:
    """Mark the run of one command. Advice in the block repeats the options of `repeat_options`."""
    _given.append({})
    try:
        yield
    finally:
        _given.pop()


def repeat_options(**options: object) -> None:
    """Set the options by which the running command finds its cluster, to repeat them in its advice.

    Without these options, a pasted command could read or change another cluster.
    """
    if _given:
        _given[-1] = {name: value for name, value in options.items() if value is not None}


def is_of_another() -> bool:
    """Return whether the command found its cluster by an address, a client file or a profile.

    The nodes of such a cluster may be on other machines, unlike those of a data directory.
    """
    given = _given[-1] if _given else {}
    return not given.keys().isdisjoint(("bootstrap", "command_config", "profile"))


def shell_command(verb: str, *names: object, **options: object) -> str:
    """Return `oncelog VERB NAME ... --option VALUE ...`, quoted for a shell.

    An option of None is left out. `verb` is our own text and stays unquoted.
    """
    first = verb.split(maxsplit=1)[0]
    given = {
        name: value
        for name, value in (_given[-1] if _given else {}).items()
        if first in CONNECTING or (name == "data" and first in OF_A_DIRECTORY)
    }
    options = {**given, **options}
    words, operands = [verb], [str(name) for name in names]
    are_plain = not any(operand.startswith("-") for operand in operands)
    words += map(shell_word, operands) if are_plain else ()
    for key, value in options.items():
        if value is not None:
            name, text = key.replace("_", "-"), shell_word(str(value))
            words.append(f"--{name}={text}" if text.startswith("-") else f"--{name} {text}")
    words += () if are_plain else ("--", *map(shell_word, operands))  # they are no options
    return " ".join(["oncelog", *words])


def shell_word(text: str) -> str:
    """Return the text as one quoted, printable word for a shell."""
    if text.isprintable():
        return shlex.quote(text)
    return f"$'{''.join(map(_ansi_c, text))}'"


def _ansi_c(character: str) -> str:
    """Return a character as written in $'...' of bash, ksh and zsh."""
    if character in _PLAIN:
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode(errors="surrogateescape"))
