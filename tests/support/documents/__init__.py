"""What documents must be, found the slow way: row by row, without any plan (`oracle`), and how to compare."""
