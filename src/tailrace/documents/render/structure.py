"""A plan as one statement: the same for every dialect.

    keys   the asked keys of the root (only where some were asked for)
    p0     rows of the root
    p1     rows of the first relation, with the values of the parent's columns that they hang on (l0, l1, …)
    g2     what hangs on rows of p1, as one JSON text (v) per l0, l1, …
    g1     p1 left joined with g2, made objects, folded into one JSON text per l0, l1, …, and beside it what
           is counted or added up over the same rows (v0, v1, …), so that no row is looked up twice
    …
    and at last p0 left joined with every g: an id and a document per row

Rows of a relation are found from the rows of its parent, so that asked keys cost what they have, whatever
the tables hold. Where every root is asked for and the two columns mean the same, the table is grouped by its
own column instead, which spares a join.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from tailrace.documents.plan import (
    Aggregate,
    Constant,
    Expression,
    Geo,
    Group,
    IndexPlan,
    Member,
    Place,
    Related,
    Scalar,
)
from tailrace.documents.render.conditions import conditions, kept
from tailrace.documents.render.dialect import Dialect, Sort, Sql, Totals
from tailrace.documents.render.families import of_kind
from tailrace.documents.render.frames import (
    RANK,
    Asked,
    Bounds,
    Frame,
    Joined,
    alike,
    leaves,
    over,
    where,
)
from tailrace.documents.render.literals import json_text
from tailrace.model.errors import ConfigError
from tailrace.model.table import Column, TableRef, TableSchema


class Structure:
    """Builds one statement."""

    def __init__(
        self,
        plan: IndexPlan,
        dialect: Dialect,
        *,
        keyed: bool = False,
        bounds: Bounds | None = None,
        keys_view: str | None = None,
        views: Mapping[TableRef, str] | None = None,
        root_view: str | None = None,
    ) -> None:
        self._plan, self._dialect = plan, dialect
        self._keyed, self._bounds, self._keys_view = keyed, bounds, keys_view
        self._views, self._root_view = views, root_view
        self._restricted = keyed or bounds is not None
        self._expressions: list[tuple[str, exp.Expression, bool]] = []
        self._numbers = 0

    def statement(self) -> str:
        """The whole, with the columns `id` and `document`."""
        place = self._plan.root
        frame = self._root()
        joined = self._below(frame)
        frame, joined = self._staged(frame, joined)
        alias = "p"
        document = self._dialect.document(self._object(place.members, frame, joined, alias))
        query = self._select(
            [(self._id(frame, alias), "id"), (document, "document")], f"{frame.name} AS {alias}"
        )
        query = self._left(query, joined)
        for name, body, once in self._expressions:
            query = query.with_(name, as_=body, materialized=once or None, copy=False)
        return self._dialect.finished(query.sql(dialect=self._dialect.name, comments=False))

    # Rows

    def _root(self) -> Frame:
        place, dialect = self._plan.root, self._dialect
        frame = self._frame(place)
        more = [] if self._plan.soft_delete is None else [kept(self._plan.soft_delete, place.table, dialect)]
        more += self._range(place)
        rows = self._rows(frame, more, root=True)
        query = self._select(self._named(frame, "t"), f"({rows}) AS t")
        if self._keyed:
            key = [place.table.column(name) for name in place.key]
            self._add("k", self._var(dialect.keys(key, self._keys_view)))
            on = [
                dialect.equal(f"k.k{at}", column, *frame.column(column.name, "t"))
                for at, column in enumerate(key)
            ]
            query = self._select(self._named(frame, "t"), "k").join(
                self._var(f"({rows}) AS t"), on=self._var(" AND ".join(on)), copy=False
            )
        self._add(frame.name, query)
        return frame

    def _range(self, place: Place) -> list[Sql]:
        if self._bounds is None:
            return []
        dialect = self._dialect
        key = [place.table.column(name) for name in place.key]
        columns = [dialect.quote(column.name) for column in key]
        values = [dialect.bound(column) for column in key]
        made = []
        if self._bounds.low:
            made.append(dialect.tuple_compare(columns, ">=", values))
        if self._bounds.high:
            made.append(dialect.tuple_compare(columns, "<", values))
        return made

    def _related(
        self, place: Place, parent: Frame, *, distinct: bool = False, also: Sequence[str] = ()
    ) -> Frame:
        """The rows that hang on rows of the parent, with other columns also if asked for."""
        dialect, link = self._dialect, place.link
        if link is None:
            raise ConfigError(f"the place {'.'.join(place.path)} hangs on nothing")
        frame = self._frame(place, also)
        rows = f"({self._rows(frame)}) AS t"
        names = [f"l{at}" for at in range(len(link.parent))]
        above = [parent.place.table.column(name) for name in link.parent]
        through = link.through
        met = link.own if through is None else through.left
        below = [(place.table if through is None else through.table).column(name) for name in met]
        frame.parental = self._parental(parent, above, below)
        frame.links = tuple(above if frame.parental else below)
        frame.unique = through is None or distinct
        junction = ""
        if through is not None:
            chosen = {
                name: f"j{at}" for at, name in enumerate(dict.fromkeys([*through.left, *through.right]))
            }
            listed = ", ".join(
                f"{self._column(through.table, name)} AS {alias}" for name, alias in chosen.items()
            )
            passing = conditions(through.filters, through.table, dialect)
            junction = f"(SELECT {listed} FROM {self._table(through.table)}{where(passing)}) AS j"
            sides = [(f"j.{chosen[name]}", column) for name, column in zip(met, below, strict=True)]
            right = [
                dialect.equal(f"j.{chosen[name]}", through.table.column(name), *frame.column(own, "t"))
                for name, own in zip(through.right, link.own, strict=True)
            ]
        else:
            sides = [frame.column(name, "t") for name in met]
        if frame.parental:
            first = f"({self._links(parent, link.parent)}) AS q"
            on = [
                dialect.equal(f"q.{name}", column, *side)
                for name, column, side in zip(names, above, sides, strict=True)
            ]
            shown = [(f"q.{name}", name) for name in names]
        else:
            first, on = "", []
            shown = [(sql, name) for (sql, _), name in zip(sides, names, strict=True)]
        query = self._select([*shown, *self._named(frame, "t")], first or junction or rows)
        if first:
            query = query.join(self._var(junction or rows), on=self._var(" AND ".join(on)), copy=False)
        else:
            query = query.where(self._var(" AND ".join(f"{sql} IS NOT NULL" for sql, _ in shown)), copy=False)
        if junction:
            query = query.join(self._var(rows), on=self._var(" AND ".join(right)), copy=False)
        if distinct:
            query = query.distinct(copy=False)
        most = 1 if link.shape in ("has_one", "belongs_to") else place.limit
        # What a key points at is one row, if it is the key.
        several = most is not None and (link.shape != "belongs_to" or set(link.own) != set(place.key))
        if several or (dialect.numbers_descending and any(one.descending for one in place.order)):
            query = self._first(frame, query, names, most)
        self._add(frame.name, query)
        return frame

    def _first(self, frame: Frame, query: exp.Select, names: Sequence[str], most: int | None) -> exp.Select:
        order = ", ".join(one.clause for one in self._order(frame, "r"))
        rank = f"row_number() OVER (PARTITION BY {', '.join(f'r.{name}' for name in names)} ORDER BY {order})"
        kept_names = [*names, *frame.columns.values(), *frame.expressions.values()]
        inner = self._select(
            [*((f"r.{name}", name) for name in kept_names), (rank, RANK)], f"({self._sql(query)}) AS r"
        )
        frame.ranked = True
        if most is None:
            return inner
        outer = self._select(
            [(f"s.{name}", name) for name in [*kept_names, RANK]], f"({self._sql(inner)}) AS s"
        )
        return outer.where(self._var(f"s.{RANK} <= {int(most)}"), copy=False)

    def _parental(self, parent: Frame, above: Sequence[Column], below: Sequence[Column]) -> bool:
        """Whether to start from the parent's rows, or from all rows that the table has."""
        if self._restricted:
            return True
        if any(not self._dialect.grouped_alike(one, two) for one, two in zip(above, below, strict=True)):
            return True
        return self._dialect.selective and (parent.ranked or bool(parent.place.filters))

    def _links(self, parent: Frame, columns: Sequence[str]) -> Sql:
        """The parent's values that rows may hang on, each once."""
        shown = [(f"p.{parent.columns[name]}", f"l{at}") for at, name in enumerate(columns)]
        query = self._select(shown, f"{parent.name} AS p")
        if not (parent.unique and set(parent.place.key) <= set(columns)):
            query = query.distinct(copy=False)
        return self._sql(query)

    def _frame(self, place: Place, also: Sequence[str] = ()) -> Frame:
        self._numbers += 1
        names: dict[str, None] = dict.fromkeys([*place.key, *also])
        names.update(dict.fromkeys(one.column for one in place.order))
        if place.link is not None:
            names.update(dict.fromkeys(place.link.own))
        expressions: list[Expression] = []
        for member in leaves(place.members):
            value = member.value
            if isinstance(value, Scalar):
                names[value.column] = None
            elif isinstance(value, Geo):
                names.update(dict.fromkeys(n for n in (value.lat, value.lon, value.column) if n is not None))
            elif isinstance(value, Expression) and value not in expressions:
                expressions.append(value)
            elif isinstance(value, Related | Aggregate) and value.place.link is not None:
                names.update(dict.fromkeys(value.place.link.parent))
        columns = {name: f"c{at}" for at, name in enumerate(names)}
        return Frame(
            f"p{self._numbers}", place, columns, {one: f"e{at}" for at, one in enumerate(expressions)}
        )

    def _rows(self, frame: Frame, more: Sequence[Sql] = (), *, root: bool = False) -> Sql:
        """The place's rows that pass its filters, in a scope of their own: nothing else has a name there."""
        place, dialect = frame.place, self._dialect
        shown = [f"{self._column(place.table, name)} AS {alias}" for name, alias in frame.columns.items()]
        shown += [
            f"{dialect.own(one.sql, place.table)} AS {alias}" for one, alias in frame.expressions.items()
        ]
        passing = [*conditions(place.filters, place.table, dialect), *more]
        table = self._table(place.table)
        if root and self._root_view is not None:
            table = dialect.quote(self._root_view)
        return f"SELECT {', '.join(shown)} FROM {table}{where(passing)}"

    # Values

    def _below(self, frame: Frame) -> Joined:
        """Everything that hangs on the rows of a frame."""
        made = Joined()
        # One pass over the rows for all that is asked of them, be they shown as well or not.
        groups: list[list[Asked]] = []
        for member in leaves(frame.place.members):
            value = member.value
            if isinstance(value, Aggregate):
                same = next((asked for asked in groups if alike(asked[0][1], value)), None)
                if same is None:
                    groups.append([(member, value)])
                else:
                    same.append((member, value))
        for member in leaves(frame.place.members):
            value = member.value
            if not isinstance(value, Related):
                continue
            asked = next((asked for asked in groups if over(asked[0][1], value)), [])
            if asked:
                groups.remove(asked)
            also = [one.column for _, one in asked if one.column is not None]
            related = self._related(value.place, frame, also=also)
            name = self._folded(frame, related, asked, made)
            many = value.place.link is not None and value.place.link.shape in ("has_many", "many_to_many")
            made.values[id(member)] = f"coalesce({name}.v, '{'[]' if many else 'null'}')"
            made.joins.append((name, name, self._on(frame, value.place, name, related)))
        for asked in groups:
            place = asked[0][1].place
            columns = [value.column for _, value in asked if value.column is not None]
            distinct = asked[0][1].distinct and place.link is not None and place.link.through is not None
            rows = self._related(place, frame, distinct=distinct, also=columns)
            self._totalled(frame, rows, asked, made, f"g{rows.name[1:]}")
        return made

    def _on(self, parent: Frame, place: Place, name: str, related: Frame) -> Sql:
        assert place.link is not None  # noqa: S101 - `_related` has refused that
        on = []
        for at, (column, link) in enumerate(zip(place.link.parent, related.links, strict=True)):
            x, above = parent.column(column, "p")
            # The parent's own value is compared with itself.
            equal = (
                f"{x} = {name}.l{at}"
                if related.parental
                else self._dialect.equal(x, above, f"{name}.l{at}", link)
            )
            on.append(equal)
        return " AND ".join(on)

    def _folded(self, parent: Frame, frame: Frame, asked: Sequence[Asked], made: Joined) -> str:
        """The objects of a frame, one per parent or as arrays, and totals, in a table of their own."""
        dialect, place = self._dialect, frame.place
        name = f"g{frame.name[1:]}"
        if asked and dialect.ordered_input:
            # The order of the array is not that of the totals.
            self._totalled(parent, frame, asked, made, f"a{frame.name[1:]}")
            asked = ()
        joined = self._below(frame)
        frame, joined = self._staged(frame, joined)
        object_ = self._object(place.members, frame, joined, "p")
        links = [(f"p.l{at}", f"l{at}") for at in range(len(frame.links))]
        source = f"{frame.name} AS p"
        assert place.link is not None  # noqa: S101 - `_related` has refused that
        if place.link.shape in ("belongs_to", "has_one"):
            query = self._left(self._select([*links, (object_, "v")], source), joined)
        else:
            order = [Sort(f"p.{RANK}", nullable=False)] if frame.ranked else self._order(frame, "p")
            if dialect.ordered_input:
                inner = self._left(self._select([*links, (object_, "v")], source), joined)
                inner = inner.order_by(
                    *(self._var(sql) for sql, _ in links),
                    *(self._var(one.clause) for one in order),
                    copy=False,
                )
                source, object_, links = f"({self._sql(inner)}) AS o", "o.v", [(n, n) for _, n in links]
                query = self._select([*links, (dialect.array(object_, order), "v")], source)
            else:
                totals, _ = self._totals(frame, asked, made, name)
                query = self._select([*links, (dialect.array(object_, order), "v"), *totals], source)
                query = self._left(query, joined)
            query = query.group_by(*(self._var(sql) for sql, _ in links), copy=False)
        self._add(name, query)
        return name

    def _totalled(self, parent: Frame, frame: Frame, asked: Sequence[Asked], made: Joined, name: str) -> None:
        """What is asked of the rows of a frame, in a table of its own."""
        shown, ordered = self._totals(frame, asked, made, name)
        links = [(f"p.l{at}", f"l{at}") for at in range(len(frame.links))]
        source = f"{frame.name} AS p"
        if ordered and self._dialect.ordered_input:
            order = ", ".join(
                [sql for sql, _ in links]
                + [one for x, c in self._key(frame) for one in self._dialect.sortable(x, c)]
            )
            source = f"(SELECT * FROM {frame.name} AS p ORDER BY {order}) AS p"
        query = self._select([*links, *shown], source)
        self._add(name, query.group_by(*(self._var(sql) for sql, _ in links), copy=False))
        made.joins.append((name, name, self._on(parent, asked[0][1].place, name, frame)))

    def _totals(
        self, frame: Frame, asked: Sequence[Asked], made: Joined, name: str
    ) -> tuple[list[tuple[Sql, str]], bool]:
        """Columns of the grouped rows of a frame, and whether they want them in order of the key."""
        shown: list[tuple[Sql, str]] = []
        ordered = False
        for member, value in asked:
            totals = self._total(value, frame, self._key(frame))
            aliases = [f"v{len(shown) + at}" for at in range(len(totals.columns))]
            shown += list(zip(totals.columns, aliases, strict=True))
            ordered = ordered or totals.ordered
            nothing = {"count": "0", "ids": "[]"}.get(value.function, "null")
            finished = totals.finish([f"{name}.{alias}" for alias in aliases])
            made.values[id(member)] = f"coalesce({finished}, '{nothing}')"
        return shown, ordered

    def _key(self, frame: Frame) -> list[tuple[Sql, Column]]:
        return [frame.column(name, "p") for name in frame.place.key]

    def _total(self, value: Aggregate, frame: Frame, key: list[tuple[Sql, Column]]) -> Totals:
        if value.function == "count":
            return Totals(("count(*)",), lambda found: f"CAST({found[0]} AS {self._dialect.text_type})")
        if value.function == "ids":
            return self._dialect.ids(value.kind, key)
        if value.column is None:
            raise ConfigError(f"{value.function} at {'.'.join(value.place.path)} needs a column")
        x, column = frame.column(value.column, "p")
        return self._dialect.totals(value, x, column, key)

    def _object(self, members: Sequence[Member], frame: Frame, joined: Joined, alias: str) -> Sql:
        return self._dialect.object(
            [(member.name, self._value(member, frame, joined, alias)) for member in members]
        )

    def _value(self, member: Member, frame: Frame, joined: Joined, alias: str) -> Sql:
        value, dialect = member.value, self._dialect
        if isinstance(value, Scalar):
            return dialect.shown(dialect.scalar(*frame.column(value.column, alias), value))
        if isinstance(value, Geo):
            names = [name for name in (value.lat, value.lon, value.column) if name is not None]
            return dialect.shown(dialect.geo(value, {name: frame.column(name, alias) for name in names}))
        if isinstance(value, Group):
            return self._object(value.members, frame, joined, alias)
        if isinstance(value, Constant):
            return dialect.literal(json_text(value.value))
        if isinstance(value, Expression):
            x = f"{alias}.{frame.expressions[value]}"
            return dialect.shown(dialect.expression(x, value.kind, of_kind(value.kind, dialect.source)))
        return joined.values[id(member)]

    def _id(self, frame: Frame, alias: str) -> Sql:
        texts = [self._dialect.id_text(*frame.column(name, alias)) for name in frame.place.key]
        if len(texts) == 1:
            return texts[0]
        pieces = [
            piece
            for at, text in enumerate(texts)
            for piece in ("','" if at else "'['", self._dialect.shown(self._dialect.quoted(text)))
        ]
        return self._dialect.concat([*pieces, "']'"])

    def _order(self, frame: Frame, alias: str) -> list[Sort]:
        """What a place's rows are ordered by: what was asked for, then the key."""
        made = []
        for one in frame.place.order:
            x, column = frame.column(one.column, alias)
            made += [Sort(sql, one.descending, column.nullable) for sql in self._dialect.sortable(x, column)]
        for name in frame.place.key:
            made += [Sort(sql, nullable=False) for sql in self._dialect.sortable(*frame.column(name, alias))]
        return made

    # Pieces of statements

    def _staged(self, frame: Frame, joined: Joined) -> tuple[Frame, Joined]:
        """The same with fewer tables to join: what is too much for one join is joined by several."""
        most = self._dialect.most_joins
        while len(joined.joins) > most:
            now, later = joined.joins[:most], joined.joins[most:]
            names = [f"l{at}" for at in range(len(frame.links))]
            names += [
                *frame.columns.values(),
                *frame.expressions.values(),
                *([RANK] if frame.ranked else []),
            ]
            carried = [sql.removeprefix("p.") for sql in joined.values.values() if sql.startswith("p.w")]
            values = {
                key: sql for key, sql in joined.values.items() if any(f"{name}." in sql for name, _, _ in now)
            }
            aliases = {key: f"w{self._numbers}_{at}" for at, key in enumerate(values)}
            query = self._select(
                [
                    *((f"p.{name}", name) for name in [*names, *carried]),
                    *((values[key], alias) for key, alias in aliases.items()),
                ],
                f"{frame.name} AS p",
            )
            self._numbers += 1
            stage = Frame(
                f"p{self._numbers}",
                frame.place,
                frame.columns,
                frame.expressions,
                frame.links,
                frame.ranked,
                frame.unique,
                frame.parental,
            )
            self._add(stage.name, self._left(query, Joined(now)), once=True)
            left = {key: f"p.{aliases[key]}" if key in aliases else sql for key, sql in joined.values.items()}
            frame, joined = stage, Joined(later, left)
        return frame, joined

    def _left(self, query: exp.Select, joined: Joined) -> exp.Select:
        for name, alias, on in joined.joins:
            table = name if name == alias else f"{name} AS {alias}"
            query = query.join(self._var(table), on=self._var(on), join_type="left", copy=False)
        return query

    def _named(self, frame: Frame, alias: str) -> list[tuple[Sql, str]]:
        return [(f"{alias}.{name}", name) for name in [*frame.columns.values(), *frame.expressions.values()]]

    def _column(self, table: TableSchema, name: str) -> Sql:
        return self._dialect.column(self._dialect.quote(name), table.column(name))

    def _table(self, table: TableSchema) -> Sql:
        return self._dialect.table(table, self._views)

    def _select(self, shown: Sequence[tuple[Sql, str]], source: Sql) -> exp.Select:
        made = [exp.alias_(self._var(sql), name) for sql, name in shown]
        return exp.Select(expressions=made).from_(self._var(source), copy=False)

    def _var(self, sql: Sql) -> exp.Var:
        """SQL of the dialect's own, which nobody reads again."""
        return exp.Var(this=sql)

    def _sql(self, query: exp.Expression) -> Sql:
        return query.sql(dialect=self._dialect.name, comments=False)

    def _add(self, name: str, query: exp.Expression, *, once: bool = False) -> None:
        self._expressions.append((name, query, once))
