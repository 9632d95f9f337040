"""Ostiary as a service of systemd."""
