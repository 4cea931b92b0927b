"""What a written table name may mean: `orders`, `shop.orders`, `"odd.name"`, or what databases fold it to."""

from __future__ import annotations

from collections.abc import Iterator


def readings(name: str, schema: str | None) -> Iterator[tuple[str | None, str]]:
    """Schema and table, best reading first; `schema` stands where the name says none."""
    parts = split(name)
    meant = [(parts[0], parts[1])] if len(parts) == 2 else [(schema, parts[0])] if len(parts) == 1 else []
    # A name with a dot in it may also be that of a table.
    for space, table in dict.fromkeys([*meant, (schema, name)]):
        yield space, table
        folded = (space.lower() if space and len(parts) == 2 else space, table.lower())
        if folded != (space, table):
            yield folded


def readings_in(schema: str, name: str) -> Iterator[tuple[str | None, str]]:
    """The same where the schema is said beside the name, which then is all table."""
    yield from dict.fromkeys([(schema, name), (schema, name.lower()), (schema.lower(), name.lower())])


def as_resolved(schema: str | None, table: str) -> str:
    """A reading as captures resolve names: quoted where a dot, a quote or a star is part of it."""
    parts = [table] if schema is None else [schema, table]
    return ".".join(_quoted(part) if set(part) & set('."*') else part for part in parts)


def _quoted(part: str) -> str:
    return '"' + part.replace('"', '""') + '"'


def split(name: str) -> list[str]:
    """The parts of a dotted name; quotes hold a part together."""
    found: list[str] = []
    rest = name
    while rest:
        if rest.startswith('"') and (end := _closing(rest)):
            found.append(rest[1:end].replace('""', '"'))
            rest = rest[end + 1 :].removeprefix(".")
        else:
            part, _, rest = rest.partition(".")
            found.append(part)
    return found if all(found) and not name.endswith(".") else [name]


def _closing(text: str) -> int:
    """Where the quotation ends that a text begins with; 0 where it does not."""
    end = 1
    while (end := text.find('"', end)) >= 0 and text[end + 1 : end + 2] == '"':
        end += 2
    return end if end > 1 and text[end + 1 : end + 2] in ("", ".") else 0
