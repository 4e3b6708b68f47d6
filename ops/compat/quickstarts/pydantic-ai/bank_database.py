class DatabaseConn:
    """A stand-in for a database."""

    async def customer_name(self, *, id: int) -> str | None:
        return "John" if id == 123 else None

    async def customer_balance(self, *, id: int, include_pending: bool) -> float:
        return 123.45 if include_pending else 100.00
