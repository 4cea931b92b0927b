"""Link state: what some columns of a row were before a change, where the log does not say.

Documents need the old parent of a row that was moved or deleted. Where the log does not carry it (PostgreSQL
under the default replica identity) it is kept here: the row's key and those columns, for exactly the tables
that need it, in one SQLite file beside the changelog. `Links.complete` stands between the capture and the
changelog: it fills the before images of a part, and remembers the after images. Downstream nobody needs to
know where an old value came from.

    links.py        the life: begin (rewind, seed), complete, prune
    completing.py   a batch against the state, by columns
    store.py        the file: current values, and how to go back
    cells.py        values and keys as SQLite holds them

The state is that of one position of the log: the end of what was completed. The changelog may end earlier
after a crash, or be cut; the log is then read again from there. So every change is kept with what was before
it, back to the acknowledged position, and `begin` goes back to where the log goes on. The same change so
always meets the same state, and gets the same answer.
"""

from tailrace.runtime.links.links import FILE, Links, horizon_of

__all__ = ["FILE", "Links", "horizon_of"]
