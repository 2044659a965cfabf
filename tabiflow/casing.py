"""Turkish lower-casing that keeps every character at its offset."""


def turkish_lower(text: str) -> str:
    """Lower-cases one code point for one, so that answer offsets stay true.

    `İ` is the only code point that `str.lower()` makes two of, and `I` the one that it gives a dot
    that Turkish does not.
    """
    return text.replace("İ", "i").replace("I", "ı").lower()
