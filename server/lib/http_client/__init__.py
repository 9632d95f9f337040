"""Requests that this server makes: to addresses of its settings, and to those that strangers name."""
