"""A handler in a child process asks for several inputs at once and gets each under its own reference."""

import asyncio
import base64
import json
import os
import threading

from workers.child import _Pipe


async def test_inputs_that_are_asked_for_at_the_same_time_do_not_change_places() -> None:
    asked_read, asked_write = os.pipe()
    answered_read, answered_write = os.pipe()

    def parent() -> None:
        with os.fdopen(asked_read, "rb") as asks, os.fdopen(answered_write, "wb") as answers:
            for line in asks:
                content = base64.b64encode(json.loads(line)["read"].encode()).decode()
                answers.write(json.dumps({"content": content, "content_type": "text/plain"}).encode() + b"\n")
                answers.flush()

    answering = threading.Thread(target=parent)
    answering.start()
    refs = [f"input_{n}" for n in range(200)]
    with os.fdopen(answered_read, "rb") as reader, os.fdopen(asked_write, "wb") as writer:
        pipe = _Pipe(reader, writer)
        found = await asyncio.gather(*(pipe.read_input("acme", ref) for ref in refs))
    await asyncio.to_thread(answering.join)

    assert [content.decode() for content, _ in found] == refs
