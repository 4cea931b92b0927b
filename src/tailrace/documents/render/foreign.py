"""Conditions and expressions that a user wrote in the source's SQL: checked, and as Spark means them.

The source runs them as they were written. For Spark sqlglot reads them; what it cannot know without types is
put right here: whole numbers are divided to whole numbers, and SQLite's LIKE takes no account of case.
"""

from __future__ import annotations

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.errors import SqlglotError

from tailrace.documents.render.families import family
from tailrace.model.errors import ConfigError
from tailrace.model.table import TableSchema

_COMPARED = (
    exp.EQ,
    exp.NEQ,
    exp.GT,
    exp.GTE,
    exp.LT,
    exp.LTE,
    exp.In,
    exp.Between,
    exp.Add,
    exp.Sub,
    exp.Mul,
)
_KEEPS_WHOLE = (exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.Div, exp.IntDiv)


def checked(sql: str, table: TableSchema, source: str) -> str:
    """The same text; ConfigError where it is not one expression over the table's own columns.

    It must not end the statement around it, nor read other rows: nobody would see when these change.
    """
    if (found := refused(sql, source)) is not None:
        what, remedy = found
        raise ConfigError(f"the SQL {sql!r} over {table.ref} {what}", remedy=remedy)
    return sql


def refused(sql: str, source: str) -> tuple[str, str] | None:
    """What the text is or does that it must not, and the remedy; None where there is nothing."""
    depth = 0
    try:
        for token in sqlglot.tokenize(sql, read=source):
            if token.token_type == TokenType.SELECT:
                return (
                    "reads other rows, and nobody follows their changes",
                    "make a relation of them, or keep what it asks for in a column of the table",
                )
            depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
            if depth < 0 or token.token_type == TokenType.SEMICOLON:
                break
        else:
            if depth == 0 and sql.strip():
                return None
    except SqlglotError:
        pass
    return (
        "is not one expression in SQL",
        "close every parenthesis and quotation mark, and leave out semicolons",
    )


def for_spark(sql: str, table: TableSchema, source: str) -> str:
    """The expression in Spark's SQL and in parentheses, its columns by their exact names."""
    try:
        # In parentheses, so that whatever is replaced has something around it.
        tree = exp.Paren(this=sqlglot.parse_one(sql, read=source))
    except SqlglotError as error:
        raise ConfigError(
            f"the SQL {sql!r} over {table.ref} cannot be read, so Spark cannot run it",
            remedy="write it in simpler SQL, or build the documents from the source",
        ) from error
    for column in list(tree.find_all(exp.Column)):
        _named(column, table, source)
    for division in list(tree.find_all(exp.Div)):
        if _whole(division, table, source):
            division.replace(exp.IntDiv(this=division.this.copy(), expression=division.expression.copy()))
    if source == "sqlite":
        for like in list(tree.find_all(exp.Like)):
            like.replace(exp.ILike(this=like.this.copy(), expression=like.expression.copy()))
    # Spark replaces ${…} by settings and variables of the environment, inside strings too.
    return str(tree.sql(dialect="spark", comments=False)).replace("${", "\\u0024{")


def _named(column: exp.Column, table: TableSchema, source: str) -> None:
    name = column.this
    if not isinstance(name, exp.Identifier):
        return
    names = {one.name for one in table.columns}
    folded = {one.lower(): one for one in names}
    exact = name.this if name.this in names and (name.quoted or source == "sqlite") else None
    found = exact or folded.get(name.this.lower(), name.this)
    name.set("this", found)
    name.set("quoted", True)
    column.set("table", None)
    boolean = found in names and family(table.column(found), source) == "boolean"
    if boolean and source == "sqlite" and isinstance(column.parent, _COMPARED):
        # It keeps booleans as numbers, and that is what they are compared with.
        column.replace(exp.cast(column.copy(), "int"))


def _whole(node: exp.Expression, table: TableSchema, source: str) -> bool:
    """Whether an expression surely is a whole number."""
    if isinstance(node, exp.Literal):
        return not node.is_string and node.this.isdigit()
    if isinstance(node, exp.Column):
        found = [one for one in table.columns if one.name == node.name]
        return bool(found) and family(found[0], source) == "integer"
    if isinstance(node, exp.Paren | exp.Neg):
        return _whole(node.this, table, source)
    if isinstance(node, _KEEPS_WHOLE):
        return _whole(node.this, table, source) and _whole(node.expression, table, source)
    return False
