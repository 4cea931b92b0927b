"""Patterns that several dialects ask of texts, in the syntax that all their engines share."""

_NUMBER = "-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][+-]?[0-9]+)?"
# A number as JSON writes it.
JSON_NUMBER = f"^{_NUMBER}$"
_BLANKS = "[ \\t\\r\\n]*"
# Without escapes, so a quotation mark always begins or ends one.
_STRING = '"[^"\\\\\\u0001-\\u001f]*"'
_MEMBER = f"{_BLANKS}{_STRING}{_BLANKS}:{_BLANKS}({_STRING}|{_NUMBER}|true|false|null){_BLANKS}"
_ELEMENT = f'{_BLANKS}({_NUMBER}|"{_NUMBER}"){_BLANKS}'
# A JSON object of a few texts and numbers, and an array of a few numbers. Java's engine needs room for each
# repetition, so these are counted.
FLAT_OBJECT = f"^{_BLANKS}[{{]{_MEMBER}(,{_MEMBER}){{0,30}}[}}]{_BLANKS}$"
FLAT_ARRAY = f"^{_BLANKS}\\[{_ELEMENT}(,{_ELEMENT}){{1,9}}\\]{_BLANKS}$"
_DAY, _CLOCK = "[0-9]{4}-[0-9]{2}-[0-9]{2}", "[0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]+)?)?"
_ZONE = "(Z|[+-][0-9]{2}(:?[0-9]{2})?)?"
# A day, and maybe a time with or without a zone, as ISO 8601 or SQLite writes it.
MOMENT = f"^{_DAY}([ T]{_CLOCK}{_ZONE})?$"


def of_member(name: str) -> str:
    """The pattern that finds a member's value in a FLAT_OBJECT, without quotation marks."""
    return f'"{name}"{_BLANKS}:{_BLANKS}"?([^",}}]*)'
