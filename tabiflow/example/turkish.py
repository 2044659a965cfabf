"""The little Turkish morphology that the example's sentences need."""

from tabiflow.casing import turkish_lower

_VOWELS = "aıoueiöü"
_HIGH = {"a": "ı", "ı": "ı", "o": "u", "u": "u", "e": "i", "i": "i", "ö": "ü", "ü": "ü"}


def upper(text: str) -> str:
    return text.replace("i", "İ").upper()


def capital(text: str) -> str:
    return upper(text[0]) + text[1:]


def suffixed(stem: str, pattern: str, link: str = "") -> str:
    """The stem with a suffix in vowel harmony: A is a or e, I one of ı i u ü, D is d or t.

    `suffixed("İzmir", "DA", "'")` is `İzmir'de`.
    """
    word = turkish_lower(stem)
    suffix = ""
    for sign in pattern:
        vowel = next(letter for letter in reversed(word) if letter in _VOWELS)
        low = "a" if vowel in "aıou" else "e"
        stop = "t" if word[-1] in "fstkçşhp" else "d"
        letter = {"A": low, "I": _HIGH[vowel], "D": stop}.get(sign, sign)
        word, suffix = word + letter, suffix + letter
    return stem + link + suffix
