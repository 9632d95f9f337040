"""Logins by a code on another device (RFC 8628). Redeeming the code is in grants/device.py."""
