# For families that are read and not tested.
