"""The experiments of the paper: what it printed, what this library finds, and the report that shows both."""
