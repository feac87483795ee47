"""Applications on a cluster, by three addresses and nothing else."""
