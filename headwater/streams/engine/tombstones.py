"""Whether deletes can have gone by unseen: compaction forgets a deleted key after a while, its tombstone with it."""

from datetime import UTC, datetime, timedelta

from headwater.client.admin import Admin
from headwater.views.model import Progress


def may_be_gone(admin: Admin, topic: str, progress: Progress, now: datetime | None = None) -> bool:
    """Whether a table that comes back to its topic may have missed deletes.

    That is so when it is behind, and has been away for longer than the topic keeps tombstones. What it missed
    it cannot find out; it is rebuilt instead.
    """
    if progress.committed is None:
        return False
    settings = {setting.name: setting.value or "" for setting in admin.configs(topic)}
    if "compact" not in settings.get("cleanup.policy", ""):
        return False
    kept = timedelta(milliseconds=min(int(settings.get("delete.retention.ms") or 0), 10**14))
    if (now or datetime.now(UTC)) - progress.committed < kept:
        return False
    covered = progress.offsets.get(topic, {})
    ends = admin.latest([(topic, number) for number in admin.partitions(topic)])
    return any(end > covered.get(str(number), 0) for (_, number), end in ends.items())
