"""Patterns that several dialects ask of texts, in the syntax that all their engines share."""

# A number as JSON writes it.
JSON_NUMBER = "^-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][+-]?[0-9]+)?$"
_DAY, _CLOCK = "[0-9]{4}-[0-9]{2}-[0-9]{2}", "[0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]+)?)?"
_ZONE = "(Z|[+-][0-9]{2}(:?[0-9]{2})?)?"
# A day, and maybe a time with or without a zone, as ISO 8601 or SQLite writes it.
MOMENT = f"^{_DAY}([ T]{_CLOCK}{_ZONE})?$"
