"""A Ray-distributed sweep engine for large fine-tuning grids."""
