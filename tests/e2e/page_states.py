"""Every browser page in every state it has: tours through the pages, for whoever wants to look at them.

A tour is a generator: it brings the page into a state and yields that state's name, until there is no more to see. What has to be
true of every state is in test_pages_accessible.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlencode

from playwright.sync_api import Page, expect

from auth import api_keys, clients, passkeys, pkce, upstream_provider, users
from auth.clients import Registration
from auth.consent import CODES_PER_PERSON_HELD
from auth.model import AUTHORIZATION_CODE, REFRESH_TOKEN, Client, PrincipalKind, Secret
from auth.policy import DevicePolicy, Policy
from auth.scopes import FINANCIAL, Scope, Vocabulary
from auth.site import Site
from auth.upstream import Provider
from auth.upstream_provider import Answer, CannotAsk, Upstreams
