"""One capture's life: state machine, checkpoint, hand-over from snapshot to stream, filling the changelog."""
