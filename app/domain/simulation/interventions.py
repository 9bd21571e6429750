"""Aging, preemption and the system of record, as far as the version in hand decides about them (`hooks`)."""

from app.domain.simulation.hooks import Aged, Candidate, Wanted
from app.domain.simulation.tasks import State, Task
from app.domain.simulation.world import World

LOOK_AGAIN_SECONDS = 1.0


def is_superseded(world: World, task: Task) -> bool:
    """Say whether the system of record no longer needs a task that is about to start."""
    return world.hooks.revalidate is not None and not world.hooks.revalidate(_is_needed(world, task))


def _is_needed(world: World, task: Task) -> bool:
    return task.closes_at is None or world.now < task.closes_at


def watch(world: World, task: Task) -> None:
    """Look at a task that begins to wait again when it may rise, or when its class may preempt for it."""
    if world.hooks.aging is not None and (aging := task.chosen.aging) is not None:
        world.at(task.submitted + aging.after_seconds, world.wake)
        if aging.or_due_share is not None and task.due is not None:
            world.at(task.submitted + aging.or_due_share * (task.due - task.submitted), world.wake)
    if world.hooks.preempt is not None and task.chosen.may_preempt:
        when = world.now + task.chosen.start_within_seconds
        world.at(when, _want, world, task, task.stamp)


def age(world: World) -> None:
    """Let the heads of lanes rise that the hook says may."""
    if world.hooks.aging is None:
        return
    for one in reversed(world.policy.classes):
        if one.aging is None:
            continue
        target = world.policy.by_name[one.aging.to]
        for task in world.lines[one.name].first_tasks():
            releases = world.record.classes[target.name].counts["started"]
            promotions = world.record.classes[one.name].counts["promoted"]
            aged = Aged(
                task.task_id, one.name, world.moment(task.submitted),
                None if task.due is None else world.moment(task.due),
                None if task.valid_until is None else world.moment(task.valid_until),
                _is_needed(world, task), promotions, releases,
            )  # fmt: skip
            to = world.hooks.aging(world.policy, aged, world.moment())
            if to is not None:
                world.record.count(task, "promoted")
                world.reclass(task, world.policy.by_name[to])


def _want(world: World, task: Task, stamp: int) -> None:
    """Ask for a victim while the task still waits past its target; look again a little later."""
    if task.stamp != stamp or task.state is not State.WAITING or world.hooks.preempt is None:
        return
    world.at(world.now + LOOK_AGAIN_SECONDS, _want, world, task, stamp)
    if task.class_name in world.victims:
        return
    candidates = [
        Candidate(
            one.task_id, one.class_name, one.head.preemptible, _checkpoint_age(world, one),
            None if one.valid_until is None else world.moment(one.valid_until),
        )
        for one in sorted(world.floor.running(), key=lambda one: one.task_id)
        if one.class_name in task.chosen.may_preempt and one.state is State.RUNNING
    ]  # fmt: skip
    if not candidates:
        return
    world.record.count(task, "preempt_requested")
    wanted = Wanted(task.chosen, world.now - task.ready_at)
    chosen = world.hooks.preempt(world.policy, wanted, candidates, world.moment())
    victim = world.live.get(chosen) if chosen is not None else None
    every = victim.work.checkpoint_every_seconds if victim is not None else None
    if victim is None or every is None:
        world.record.count(task, "preempt_declined")
        return
    world.victims[task.class_name] = victim
    victim.preempted_by = task.class_name
    steps = int((world.now - victim.run_began) / every + 1e-9) + 1
    world.at(victim.run_began + steps * every, _checkpoint, world, victim, victim.stamp)


def _checkpoint_age(world: World, task: Task) -> float | None:
    every = task.work.checkpoint_every_seconds
    if every is None or world.now - task.run_began < every:
        return None
    return (world.now - task.run_began) % every


def _checkpoint(world: World, victim: Task, stamp: int) -> None:
    """Let the victim give its seat back at its checkpoint, unless nobody needs it any more."""
    if victim.stamp != stamp or victim.preempted_by is None:
        return
    wanting = victim.preempted_by
    ended(world, victim)
    if not world.lines[wanting].count:
        world.record.classes[wanting].counts["preempt_reverted"] += 1
        return
    world.record.classes[wanting].counts["preempt_executed"] += 1
    if victim.work.loses_checkpoint and world.draw.random() < victim.work.loses_checkpoint:
        world.record.count(victim, "checkpoints_lost")
        victim.done_seconds = 0.0
    else:
        victim.done_seconds += (world.now - victim.run_began) / world.calls.slower(victim)
    world.leave(victim)
    world.delay(victim, 0.0)


def ended(world: World, task: Task) -> None:
    """Forget that a task was to be preempted: it is on its way out by itself."""
    if task.preempted_by is not None:
        world.victims.pop(task.preempted_by, None)
        task.preempted_by = None
