"""What an installation is told: as it is written, what it comes to, and the file that `init` writes."""
