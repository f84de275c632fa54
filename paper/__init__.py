"""The experiments of the paper: printed values, our results, and the report that compares them."""
