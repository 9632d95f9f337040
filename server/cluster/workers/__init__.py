"""Workers: processes of this program on one machine, and their parent, which holds the sockets."""
