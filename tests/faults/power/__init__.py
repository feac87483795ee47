"""Power cuts: after a kill, the data directory is put into a state that a loss of power could have left."""
