"""`ostiary doctor`: the checks of a server, from outside and at its machine."""
