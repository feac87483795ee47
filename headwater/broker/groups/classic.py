"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

Membership lives in memory; a generation is written to the journal when its leader has brought the assignment,
and when the group becomes empty. Nothing here awaits while it changes a group, so that each change sees a
whole one; what must wait for the journal comes back through an effect that looks at the group anew.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial

from kio.schema.errors import ErrorCode

from headwater.broker.groups.classic_group import ClassicGroup, ClassicMember, ClassicState, new_member_id
from headwater.broker.groups.classic_messages import JoinAnswer, JoinRequest, SyncAnswer, SyncRequest
from headwater.broker.groups.ledger import nothing
from headwater.broker.groups.refusals import Refusal, code_of
from headwater.broker.groups.registry import Registry

log = logging.getLogger(__name__)

EMPTY, PREPARING, COMPLETING = ClassicState.EMPTY, ClassicState.PREPARING, ClassicState.COMPLETING
STABLE, DEAD = ClassicState.STABLE, ClassicState.DEAD

_FROZEN_SECONDS = 0.1  # how long time stands still for a group that is becoming another one


class ClassicProtocol:
    """Drives the state machine of classic groups."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._settings = registry.settings
        self._timers = registry.timers

    # -- JoinGroup ---------------------------------------------------------------------------------

    def join(self, request: JoinRequest) -> "JoinAnswer | asyncio.Future[JoinAnswer]":
        """The answer, or a promise of it: a join is held until the rebalance has all members."""
        group = self._registry.classic(request.group_id)
        if group is None:
            if request.member_id:
                return JoinAnswer(ErrorCode.unknown_member_id, request.member_id)
            group = ClassicGroup(request.group_id, state_ms=self._registry.now_ms())
            self._registry.groups[request.group_id] = group
        try:
            answer = self._admit(group, request)
        except Refusal as refusal:
            answer = JoinAnswer(refusal.code, request.member_id)
        if group.state is PREPARING and group.all_joined and group.previous_state is not EMPTY:
            self._complete_join(group)
        self._registry.drop_if_void(request.group_id)
        return answer

    def _admit(self, group: ClassicGroup, request: JoinRequest) -> "JoinAnswer | asyncio.Future[JoinAnswer]":
        if not self._has_room(group, request.member_id):
            group.remove(request.member_id)
            self._timers.cancel(("session", group.group_id, request.member_id))
            return JoinAnswer(ErrorCode.group_max_size_reached)
        if group.state is DEAD:
            raise Refusal(ErrorCode.coordinator_not_available)
        if not group.supports(request.protocol_type, request.protocols):
            raise Refusal(ErrorCode.inconsistent_group_protocol)
        if not request.member_id:
            return self._admit_new(group, request)
        if request.member_id in group.pending_joins:
            if request.instance_id is not None:
                raise Refusal(ErrorCode.unknown_server_error)
            return self._add(group, request, request.member_id)
        group.validate_member(request.member_id, request.instance_id)
        return self._readmit(group, request)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        limit = self._settings.max_size
        member = group.members.get(member_id)
        if group.state is EMPTY:
            return True
        if group.state is PREPARING:
            # Counting those who wait, not all members, drops the last ones when the limit was lowered.
            return (member is not None and member.joining is not None) or group.joining_count < limit
        return member is not None or len(group.members) < limit

    def _admit_new(
        self, group: ClassicGroup, request: JoinRequest
    ) -> "JoinAnswer | asyncio.Future[JoinAnswer]":
        member_id = new_member_id(
            request.instance_id if request.instance_id is not None else request.client_id
        )
        if request.instance_id is not None:
            if request.instance_id in group.static_members:
                return self._return_static(group, request, member_id)
            return self._add(group, request, member_id)
        if not request.needs_known_id:
            return self._add(group, request, member_id)
        if len(group.pending_joins) >= self._settings.max_size:
            return JoinAnswer(ErrorCode.group_max_size_reached)
        group.pending_joins.add(member_id)
        self._schedule_session(group.group_id, member_id, request.session_timeout_ms)
        return JoinAnswer(ErrorCode.member_id_required, member_id)

    def _add(self, group: ClassicGroup, request: JoinRequest, member_id: str) -> "asyncio.Future[JoinAnswer]":
        future: asyncio.Future[JoinAnswer] = asyncio.get_running_loop().create_future()
        member = ClassicMember(
            member_id, request.instance_id, request.client_id, request.client_host,
            request.rebalance_timeout_ms, request.session_timeout_ms,
            request.protocol_type, request.protocols, is_new=True,
        )  # fmt: skip
        if group.state is PREPARING and group.previous_state is EMPTY:
            group.new_member_added = True
        group.add(member, future)
        # A new member has no id to send heartbeats with, and a lost connection goes unnoticed while its join
        # is held: this keeps joins that nobody waits for from piling up.
        self._schedule_session(group.group_id, member_id, self._settings.new_member_join_timeout_ms)
        self._prepare_if_possible(group)
        return future

    def _readmit(
        self, group: ClassicGroup, request: JoinRequest
    ) -> "JoinAnswer | asyncio.Future[JoinAnswer]":
        member = group.members[request.member_id]
        same = member.protocols == request.protocols
        match group.state:
            case ClassicState.PREPARING:
                return self._rejoin(group, member, request)
            case ClassicState.COMPLETING:
                # With the same metadata it may have missed the answer: tell it again.
                return self._current(group, member) if same else self._rejoin(group, member, request)
            case ClassicState.STABLE:
                # A leader that joins again asks for a rebalance, because topics changed, say.
                if member.member_id == group.leader or not same:
                    return self._rejoin(group, member, request)
                return self._current(group, member)
        raise Refusal(ErrorCode.unknown_member_id)

    def _rejoin(
        self, group: ClassicGroup, member: ClassicMember, request: JoinRequest
    ) -> "asyncio.Future[JoinAnswer]":
        future: asyncio.Future[JoinAnswer] = asyncio.get_running_loop().create_future()
        self._take_over(group, member, request)
        group.hold_join(member, future)
        self._prepare_if_possible(group)
        return future

    def _take_over(self, group: ClassicGroup, member: ClassicMember, request: JoinRequest) -> None:
        group.update(member, request.protocols)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms

    def _current(self, group: ClassicGroup, member: ClassicMember) -> JoinAnswer:
        is_leader = member.member_id == group.leader
        return JoinAnswer(
            member_id=member.member_id,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=group.leader or "",
            members=group.joined_members() if is_leader else (),
        )

    def _return_static(
        self, group: ClassicGroup, request: JoinRequest, member_id: str
    ) -> "JoinAnswer | asyncio.Future[JoinAnswer]":
        """A static member restarted: in a stable group it gets its assignment back, without a rebalance."""
        assert request.instance_id is not None
        old_leader = group.leader or ""
        self._timers.cancel(("session", group.group_id, group.static_members[request.instance_id]))
        member = group.replace_static(request.instance_id, member_id)
        member.client_id, member.client_host = request.client_id, request.client_host
        self._take_over(group, member, request)
        self._keep_alive(group, member)
        future: asyncio.Future[JoinAnswer] = asyncio.get_running_loop().create_future()
        if group.state is STABLE and group.select_protocol() == group.protocol_name:
            self._save_returned(group, member, request, old_leader, future)
            return future
        group.hold_join(member, future)
        self._prepare_if_possible(group)
        return future

    def _save_returned(
        self,
        group: ClassicGroup,
        member: ClassicMember,
        request: JoinRequest,
        old_leader: str,
        future: "asyncio.Future[JoinAnswer]",
    ) -> None:
        """Answer once the journal knows the new id. If that fails the client joins again, with no id."""
        is_leader = member.member_id == group.leader
        answer = JoinAnswer(
            member_id=member.member_id,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            # Before version 9 a returning leader must not know that it is one: it would assign anew.
            leader=(group.leader or "") if request.can_skip_assignment else old_leader,
            skip_assignment=request.can_skip_assignment and is_leader,
            members=group.joined_members() if request.can_skip_assignment and is_leader else (),
        )
        task = self._registry.ledger.submit(group.group_id, [group.record()], nothing)

        def written(task: "asyncio.Task[None]") -> None:
            if not future.done():
                failure = None if task.cancelled() else task.exception()
                future.set_result(answer if failure is None else JoinAnswer(code_of(failure)))

        task.add_done_callback(written)

    # -- rebalancing -------------------------------------------------------------------------------

    def _prepare_if_possible(self, group: ClassicGroup) -> None:
        if group.is_in(STABLE, COMPLETING, EMPTY):
            self.prepare(group)

    def prepare(self, group: ClassicGroup) -> None:
        """Begin a rebalance: from now on members are expected to join again."""
        if group.state is COMPLETING:
            self._refuse_syncs(group, ErrorCode.rebalance_in_progress)
        self._timers.cancel(("sync", group.group_id))
        group.pending_syncs.clear()
        is_initial = group.state is EMPTY
        group.become(PREPARING, self._registry.now_ms())
        if is_initial:
            # Others that start together with the first member should be part of its rebalance.
            delay = self._settings.initial_rebalance_delay_ms
            group.new_member_added = False
            self._delay_initial(group.group_id, delay, max(group.rebalance_timeout_ms - delay, 0))
        elif group.all_joined:
            self._complete_join(group)
        else:
            self._expect_joins(group)

    def _expect_joins(self, group: ClassicGroup) -> None:
        timeout = group.rebalance_timeout_ms / 1000
        self._schedule(("join", group.group_id), timeout, partial(self._joins_over, group.group_id))

    def _delay_initial(self, group_id: str, delay_ms: int, remaining_ms: int) -> None:
        over = partial(self._initial_over, group_id, delay_ms, remaining_ms)
        self._schedule(("join", group_id), delay_ms / 1000, over)

    def _initial_over(self, group_id: str, delay_ms: int, remaining_ms: int) -> None:
        group = self._registry.classic(group_id)
        if group is None or group.state is not PREPARING:
            return
        if group.new_member_added and remaining_ms > 0:
            group.new_member_added = False
            following = min(self._settings.initial_rebalance_delay_ms, remaining_ms)
            self._delay_initial(group_id, following, max(remaining_ms - delay_ms, 0))
        else:
            self._complete_join(group)

    def _joins_over(self, group_id: str) -> None:
        group = self._registry.classic(group_id)
        if group is not None and group.state is PREPARING:
            self._complete_join(group)

    def _complete_join(self, group: ClassicGroup) -> None:
        """The members that have joined are the new generation; dynamic ones that have not are out."""
        self._timers.cancel(("join", group.group_id))
        for member in [m for m in group.members.values() if m.joining is None and m.instance_id is None]:
            group.remove(member.member_id)
            self._timers.cancel(("session", group.group_id, member.member_id))
        if not group.elect_joined_leader() and group.members:
            # Only static members are left, and none has joined: wait until their sessions end.
            self._expect_joins(group)
            return
        group.next_generation(self._registry.now_ms())
        if not group.members:
            self._save_empty(group)
            return
        for member in group.members.values():
            group.answer_join(member, self._current(group, member))
            member.is_new = False
            self._keep_alive(group, member)
        group.pending_syncs.update(group.members)
        timeout = group.rebalance_timeout_ms / 1000
        over = partial(self._syncs_over, group.group_id, group.generation)
        self._schedule(("sync", group.group_id), timeout, over)

    def _save_empty(self, group: ClassicGroup) -> None:
        # If this write fails, a restarted broker finds the members again, and their sessions end.
        group.in_journal = True
        self._registry.ledger.submit(group.group_id, [group.record()], nothing)

    def _syncs_over(self, group_id: str, generation: int) -> None:
        """Members that joined and never synced are out."""
        group = self._registry.classic(group_id)
        if group is None or group.generation != generation or not group.is_in(COMPLETING, STABLE):
            return
        late = list(group.pending_syncs)
        for member_id in late:
            group.remove(member_id)
            self._timers.cancel(("session", group_id, member_id))
        if late:
            self.prepare(group)

    # -- SyncGroup ---------------------------------------------------------------------------------

    def sync(self, request: SyncRequest) -> "SyncAnswer | asyncio.Future[SyncAnswer]":
        """The member's assignment, or a promise of it: a sync is held until the leader has brought it."""
        group = self._registry.classic(request.group_id)
        if group is None:
            raise Refusal(ErrorCode.unknown_member_id)
        if group.state is DEAD:
            raise Refusal(ErrorCode.coordinator_not_available)
        group.validate_member(request.member_id, request.instance_id)
        if request.generation != group.generation:
            raise Refusal(ErrorCode.illegal_generation)
        if group.is_frozen:
            raise Refusal(ErrorCode.rebalance_in_progress)
        if request.protocol_type is not None and request.protocol_type != group.protocol_type:
            raise Refusal(ErrorCode.inconsistent_group_protocol)
        if request.protocol_name is not None and request.protocol_name != group.protocol_name:
            raise Refusal(ErrorCode.inconsistent_group_protocol)
        member = group.members[request.member_id]
        match group.state:
            case ClassicState.PREPARING:
                raise Refusal(ErrorCode.rebalance_in_progress)
            case ClassicState.COMPLETING:
                return self._hold_sync(group, member, request)
            case ClassicState.STABLE:
                self._synced(group, member)
                self._keep_alive(group, member)
                return self._assigned(group, member)
        raise Refusal(ErrorCode.unknown_member_id)

    def _hold_sync(
        self, group: ClassicGroup, member: ClassicMember, request: SyncRequest
    ) -> "asyncio.Future[SyncAnswer]":
        self._synced(group, member)
        if member.syncing is not None and not member.syncing.done():
            return member.syncing  # sent again: one answer serves both
        future = member.syncing = asyncio.get_running_loop().create_future()
        if member.member_id == group.leader:
            assignments = {member_id: request.assignments.get(member_id, b"") for member_id in group.members}
            self._save_assignment(group, assignments)
        return future

    def _synced(self, group: ClassicGroup, member: ClassicMember) -> None:
        group.pending_syncs.discard(member.member_id)
        if not group.pending_syncs:
            self._timers.cancel(("sync", group.group_id))

    def _save_assignment(self, group: ClassicGroup, assignments: dict[str, bytes]) -> None:
        generation = group.generation

        def still_waiting() -> bool:
            return group.state is COMPLETING and group.generation == generation

        def assign() -> None:
            group.in_journal = True
            if not still_waiting():
                return  # a member came or went meanwhile: this assignment is not for the group any more
            group.become(STABLE, self._registry.now_ms())
            for member in group.members.values():
                member.assignment = assignments.get(member.member_id, b"")
                if member.answer_sync(self._assigned(group, member)):
                    self._keep_alive(group, member)

        def written(task: "asyncio.Task[None]") -> None:
            failure = None if task.cancelled() else task.exception()
            if failure is not None and still_waiting():
                self._refuse_syncs(group, code_of(failure))
                self._prepare_if_possible(group)

        record = group.record(assignments)
        self._registry.ledger.submit(group.group_id, [record], assign).add_done_callback(written)

    def _refuse_syncs(self, group: ClassicGroup, code: ErrorCode) -> None:
        for member in group.members.values():
            member.assignment = b""
            if member.answer_sync(SyncAnswer(code)):
                self._keep_alive(group, member)

    def _assigned(self, group: ClassicGroup, member: ClassicMember) -> SyncAnswer:
        return SyncAnswer(
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            assignment=member.assignment,
        )

    # -- Heartbeat, LeaveGroup ---------------------------------------------------------------------

    def heartbeat(self, group_id: str, generation: int, member_id: str, instance_id: str | None) -> None:
        """Note that the member lives; refuse with what it has to do."""
        group = self._registry.classic(group_id)
        if group is None:
            raise Refusal(ErrorCode.unknown_member_id)
        if group.state is DEAD:
            raise Refusal(ErrorCode.coordinator_not_available)
        group.validate_member(member_id, instance_id)
        if generation != group.generation:
            raise Refusal(ErrorCode.illegal_generation)
        self._keep_alive(group, group.members[member_id])
        if group.state is PREPARING:
            raise Refusal(ErrorCode.rebalance_in_progress)

    def committed(self, group: ClassicGroup, member_id: str) -> None:
        """A commit shows that its member lives."""
        member = group.members.get(member_id)
        if member is not None and group.is_in(STABLE, PREPARING):
            self._keep_alive(group, member)

    def leave(
        self, group: ClassicGroup, members: Iterable[tuple[str, str | None]]
    ) -> list[tuple[str, str | None, ErrorCode]]:
        """Take members out (id and instance id); an instance id alone is what an administrator sends."""
        answers, before = [], len(group.members)
        for member_id, instance_id in members:
            try:
                self._leave_one(group, member_id, instance_id)
                answers.append((member_id, instance_id, ErrorCode.none))
            except Refusal as refusal:
                answers.append((member_id, instance_id, refusal.code))
        self._after_removal(group, needs_rebalance=len(group.members) < before)
        self._registry.drop_if_void(group.group_id)
        return answers

    def _leave_one(self, group: ClassicGroup, member_id: str, instance_id: str | None) -> None:
        if instance_id is not None:
            current = group.static_members.get(instance_id)
            if current is None:
                raise Refusal(ErrorCode.unknown_member_id)
            if member_id and member_id != current:
                raise Refusal(ErrorCode.fenced_instance_id)
            member_id = current
        elif member_id in group.pending_joins:
            group.pending_joins.discard(member_id)
            self._timers.cancel(("session", group.group_id, member_id))
            return
        if member_id not in group.members:
            raise Refusal(ErrorCode.unknown_member_id)
        self._remove(group, group.members[member_id])

    # -- sessions ----------------------------------------------------------------------------------

    def resume(self, group: ClassicGroup) -> None:
        """Give the members of a group from the journal a whole session to come back."""
        for member in group.members.values():
            self._keep_alive(group, member)
        if len(group.members) > self._settings.max_size:
            self._prepare_if_possible(group)

    def _keep_alive(self, group: ClassicGroup, member: ClassicMember) -> None:
        self._schedule_session(group.group_id, member.member_id, member.session_timeout_ms)

    def _schedule_session(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        over = partial(self._session_over, group_id, member_id)
        self._schedule(("session", group_id, member_id), timeout_ms / 1000, over)

    def _schedule(self, name: tuple[str, ...], seconds: float, over: Callable[[], None]) -> None:
        def run() -> None:
            group = self._registry.classic(name[1])
            if group is not None and group.is_frozen:
                self._schedule(name, _FROZEN_SECONDS, over)
            else:
                over()

        self._timers.schedule(name, seconds, run)

    def _session_over(self, group_id: str, member_id: str) -> None:
        group = self._registry.classic(group_id)
        if group is None:
            return
        member = group.members.get(member_id)
        if member_id in group.pending_joins:
            group.pending_joins.discard(member_id)
        elif member is not None and member.must_prove_life():
            log.info("group %s: member %s gave no sign of life and is out", group_id, member_id)
            self._remove(group, member)
        else:
            return
        self._after_removal(group, needs_rebalance=member is not None)
        self._registry.drop_if_void(group_id)

    def _remove(self, group: ClassicGroup, member: ClassicMember) -> None:
        # If the member still waits, this answer makes it join anew.
        group.answer_join(member, JoinAnswer(ErrorCode.unknown_member_id))
        member.answer_sync(SyncAnswer(ErrorCode.unknown_member_id))
        group.remove(member.member_id)
        self._timers.cancel(("session", group.group_id, member.member_id))

    def _after_removal(self, group: ClassicGroup, needs_rebalance: bool) -> None:
        if needs_rebalance and group.is_in(STABLE, COMPLETING):
            self.prepare(group)
        elif group.state is PREPARING and group.all_joined:
            self._complete_join(group)
