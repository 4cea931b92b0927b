"""Documents of a pipeline: kept in step with the source, batch by batch.

    changes ─▶ resolve (which documents) ─▶ build (from the source's rows, as they are now) ─▶ write

`indexes.py` has the life of an index: when it is filled, which generation is written, when readers see it.
`build.py` builds and writes documents of some keys, here or on executors, and `spread.py` deals the keys out.
`state.py` is what a pipeline remembers of its indexes.

An index is filled by a snapshot of its root table: the rows' keys come through the stream like changes do,
so filling is parallel, resumed by chunk, can be paused, and changes flow meanwhile. Every filling writes a
generation of its own, which readers see once it is complete.
"""
