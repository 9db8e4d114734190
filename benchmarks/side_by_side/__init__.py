"""One update of each training task, written three ways, side by side."""
