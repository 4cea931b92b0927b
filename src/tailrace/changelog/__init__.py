"""The durable queue between capture and Spark: Arrow segments, whole transactions, retention, back-pressure.

`log.Changelog` is the owner's side, `reader.read_windows` the executors'. `statefile`, `owner` and
`filesystem` serve every other state directory too.
"""
