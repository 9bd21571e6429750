"""A client as it should be: every submission has an idempotency key and is sent again until it is accepted."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

import httpx

from tests.support.installation import ADMIN_KEY


@dataclass
class Client:
    """Sends tasks; `accepted` has the task of every key, `answers` counts what came back, `wrong` what never should."""

    url: str
    accepted: dict[str, str] = field(default_factory=dict)
    answers: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    async def submit(self, http: httpx.AsyncClient, key: str, body: object, tenant_id: str) -> None:
        """Send one task until it is accepted, however often that takes."""
        headers = {"Authorization": f"Bearer {ADMIN_KEY}", "Idempotency-Key": key}
        while True:
            try:
                answer = await http.post(
                    f"{self.url}/v1/tasks", params={"tenant_id": tenant_id}, json=body, headers=headers, timeout=10.0
                )
            except httpx.TransportError as error:
                self.answers[type(error).__name__] += 1
                await asyncio.sleep(0.1)
                continue
            self.answers[str(answer.status_code)] += 1
            if answer.status_code == 202:
                self._take(key, answer.json()["task_id"])
                return
            if answer.status_code not in (409, 503) or "retry-after" not in answer.headers:
                self.wrong.append(f"{answer.status_code} {answer.text[:300]}")
                return
            await asyncio.sleep(min(0.5, float(answer.headers["retry-after"])))

    async def submit_twice(self, http: httpx.AsyncClient, key: str, body: object, tenant_id: str) -> None:
        """Send one task from two places at the same time, as an impatient caller does."""
        await asyncio.gather(*(self.submit(http, key, body, tenant_id) for _ in range(2)))

    def _take(self, key: str, task_id: str) -> None:
        if self.accepted.setdefault(key, task_id) != task_id:
            self.wrong.append(f"two tasks for the key {key}: {self.accepted[key]} and {task_id}")
