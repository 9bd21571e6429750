"""The benchmark: this product and its peers on the same machine, in one run."""
