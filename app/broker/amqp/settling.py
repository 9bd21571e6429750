"""Which deliveries of a channel are settled, and how to say so in as few methods as their tags allow. Pure.

RabbitMQ's quorum queues turn every ack method into a command of their own in the replicated log, so one ack with
`multiple` for the oldest run of settled tags is worth hundreds of single ones.
"""

from collections.abc import Iterable

from app.broker.amqp.frames import BASIC_ACK, BASIC_REJECT, FRAME_END, METHOD, SETTLE

_ARGUMENTS_BYTES = 13


class Settlements:
    """The settled tags of one channel; tags start at 1 and are settled once."""

    __slots__ = ("_channel", "_lowest", "_settled")

    def __init__(self, channel: int) -> None:
        self._channel = channel
        self._lowest = 1
        """Every tag below is settled."""
        self._settled: set[int] = set()
        """The settled tags from `_lowest` on."""

    def ack(self, tags: Iterable[int]) -> bytes:
        """Return the frames that ack these tags: the oldest contiguous run as one, the rest one by one."""
        fresh = self._take(tags)
        settled, lowest = self._settled, self._lowest
        while lowest in settled:
            settled.remove(lowest)
            lowest += 1
        self._lowest = lowest
        # A tag that was settled before may end the run, and an ack may only name one that is still out.
        last = max((tag for tag in fresh if tag < lowest), default=0)
        frames = [self._frame(BASIC_ACK, last, 1)] if last else []
        frames += [self._frame(BASIC_ACK, tag, 0) for tag in fresh if tag > lowest]
        return b"".join(frames)

    def give_back(self, tags: Iterable[int], *, requeue: bool) -> bytes:
        """Return the frames that give these tags back to their queue, or else reject them."""
        return b"".join(self._frame(BASIC_REJECT, tag, int(requeue)) for tag in self._take(tags))

    def _take(self, tags: Iterable[int]) -> list[int]:
        settled, lowest = self._settled, self._lowest
        fresh = [tag for tag in dict.fromkeys(tags) if tag >= lowest and tag not in settled]
        settled.update(fresh)
        return fresh

    def _frame(self, method_id: int, tag: int, bits: int) -> bytes:
        return SETTLE.pack(METHOD, self._channel, _ARGUMENTS_BYTES, method_id, tag, bits, FRAME_END)
