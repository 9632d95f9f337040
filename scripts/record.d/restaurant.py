from datetime import date

from ostiary import Context, tool


@tool
async def book(guests: int, ctx: Context) -> str:
    """Book a table."""
    day = await ctx.elicit("Which day?", date)
    return f"{guests} guests on {day.content:%d %B}" if day.accepted else "nothing booked"
