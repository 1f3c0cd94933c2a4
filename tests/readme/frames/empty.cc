// For families that are read and not compiled.
