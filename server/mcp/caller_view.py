"""Who calls, as those who call others in their name may see it."""

from __future__ import annotations

from typing import Protocol


class CallerIdentity(Protocol):
    """Who calls, for a back-end that calls others in their name. Never a token."""

    @property
    def kind(self) -> str: ...

    @property
    def subject(self) -> str: ...

    @property
    def client_id(self) -> str | None: ...

    @property
    def user(self) -> str | None:
        """Whose account bounds it, where that is not the subject."""
        ...

    @property
    def identified(self) -> bool:
        """Whether it can be told from everybody else."""
        ...
