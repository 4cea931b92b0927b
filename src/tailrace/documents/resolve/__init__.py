"""Which documents a change touches.

    changes ─▶ entries (where a table meets the plan) ─▶ old and new values ─▶ one statement each ─▶ root keys

`entries.py` says for each place of a plan which columns of a changed row lead to documents. `values.py` takes
these columns out of whole batches, `statement.py` renders the way from them up to the roots, `resolver.py`
puts it together. `parents.py` tells `check` where old values come from.

Rows between a change and its roots are looked up as they are now. That is enough: whatever moved them since
is a change too, and brings their old parents itself. So call it only when everything up to the end of the
changes is visible (`Capture.wait_visible`).
"""

from tailrace.documents.resolve.entries import Entry, entries
from tailrace.documents.resolve.parents import OldParents, needed, old_parents
from tailrace.documents.resolve.resolver import Affected, Resolver

__all__ = ["Affected", "Entry", "OldParents", "Resolver", "entries", "needed", "old_parents"]
