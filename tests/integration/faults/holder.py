"""A client that takes permits and does nothing more: `python -m tests.integration.faults.holder ADDRESS COUNT`."""

from __future__ import annotations

import asyncio
import sys

from admission.client.aio import AsyncClient
from admission.client.settings import ClientSettings
from admission.v1.types_pb2 import Ticket


async def main(address: str, count: int) -> None:
    """Prints how many permits the sidecar gave, and waits for the end of the world."""
    client = AsyncClient(ClientSettings(address=address, decision_timeout_ms=10_000))
    ask = Ticket(model="m", prompt_tokens=1, max_tokens=1)
    permits = [await client.acquire(ask) for _ in range(count)]
    given = sum(permit.admitted and not permit.answer.local for permit in permits)
    others = {str(permit.answer) for permit in permits if not permit.admitted or permit.answer.local}
    print(given, *others, flush=True)  # noqa: T201 - the answer
    await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
