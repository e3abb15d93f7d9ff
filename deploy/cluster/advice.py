"""Commands that a person is advised to run: pasted into a shell, they are that and nothing else.

Names come from clients, which may call a transactional id `x; rm -rf ~` or `--prefix=a`.
`tests/tidy/test_advice.py` finds texts with a command that was not made here.
"""

import shlex

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,:;/@%+=_-()[]")


def shell_command(verb: str, *names: object, **options: object) -> str:
    """Return `oncelog VERB NAME ... --option VALUE ...` as a shell takes it; None: no such option.

    `verb` is ours and stands as it is.
    """
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
    """Return the text quoted: one word of a shell, and printable."""
    if text.isprintable():
        return shlex.quote(text)
    return f"$'{''.join(map(_ansi_c, text))}'"


def _ansi_c(character: str) -> str:
    """Return a character as it stands in $'...' of bash, ksh and zsh."""
    if character in _PLAIN:
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode(errors="surrogateescape"))
