"""Two model servers with OpenAI's API that answer with the words of the prompt, one at a time.

python models.py 127.0.0.11:8000 127.0.0.12:8000
"""

from __future__ import annotations

import asyncio
import json
import sys

from aiohttp import web

PAUSE_SECONDS = 0.05
"""Time that a model takes for a word."""


def application(name: str) -> web.Application:
    """Return a model server. Its name is in the header X-Model-Server."""

    async def complete(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        words = body["messages"][-1]["content"].split()
        headers = {"X-Model-Server": name}
        if not body.get("stream"):
            await asyncio.sleep(PAUSE_SECONDS * len(words))
            message = {"role": "assistant", "content": " ".join(words)}
            answer = {"object": "chat.completion", "choices": [{"index": 0, "message": message}]}
            return web.json_response(answer, headers=headers)
        response = web.StreamResponse(headers={**headers, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        for word in words:
            await asyncio.sleep(PAUSE_SECONDS)
            choices = [{"index": 0, "delta": {"content": f"{word} "}}]
            event = json.dumps({"object": "chat.completion.chunk", "choices": choices})
            await response.write(f"data: {event}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    result = web.Application()
    result.router.add_post("/v1/chat/completions", complete)
    return result


async def main(addresses: list[str]) -> None:
    """Serve a model on each address until the process ends."""
    for address in addresses:
        runner = web.AppRunner(application(address))
        await runner.setup()
        host, _, port = address.rpartition(":")
        await web.TCPSite(runner, host, int(port)).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
