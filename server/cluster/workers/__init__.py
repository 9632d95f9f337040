"""Several processes of this program on one machine: a parent that holds the sockets, and its workers, which serve."""
