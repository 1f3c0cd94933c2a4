// Stands in for a source.
