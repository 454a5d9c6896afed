"""The demonstration that `make demo` runs: orders through a cluster, a group and Spark."""
