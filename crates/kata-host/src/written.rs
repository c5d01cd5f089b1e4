//! The files of others, and their folders, that we wrote without a restart since, so that they are not taken for
//! changed by another program.
//!
//! They are noted where a boot forgets them, which restarts the container runtime as well, and where there is room on
//! a node whose disk is full. What cannot be noted only makes a node wait for a restart that it does not need.

use std::collections::BTreeMap;

use crate::host::{Host, HostResult};
use crate::paths;
use crate::plan::HostPlan;

/// Paths with the times of their last change, in nanoseconds since 1970.
pub(crate) type Written = BTreeMap<String, i64>;

/// What is noted.
pub(crate) fn load(host: &mut dyn Host) -> HostResult<Written> {
    let text = host.read(paths::WRITTEN)?.unwrap_or_default();
    Ok(serde_json::from_slice(&text).unwrap_or_default())
}

/// Notes what a plan wrote.
pub(crate) fn note(host: &mut dyn Host, plan: &HostPlan) {
    let paths = plan.changes.iter().map(|change| change.path.as_str());
    let paths = paths.filter(|path| !path.starts_with(paths::ROOT));
    let paths = paths.flat_map(|path| [path, paths::parent(path)]);
    // What others changed before stays theirs.
    let paths: Vec<&str> =
        paths.filter(|path| plan.changed_by_others.iter().all(|it| it != path)).collect();
    if paths.is_empty() {
        return;
    }
    let note = || -> HostResult<()> {
        let mut written = load(host)?;
        for path in paths {
            if let Some(found) = host.stat(path)? {
                written.insert(path.to_owned(), found.changed);
            }
        }
        let text = serde_json::to_vec(&written).unwrap_or_default();
        host.make_dir(paths::RUN_DIR, 0o700)?;
        // Half of it would be as good as nothing.
        let temporary = paths::temporary(paths::WRITTEN);
        host.write(&temporary, &text, 0o600)?;
        host.rename(&temporary, paths::WRITTEN)
    };
    match note() {
        Ok(()) | Err(_) => {}
    }
}

/// Forgets it: the container runtime has been started since. A removal without a restart does not: the next
/// installation would take what was undone before for a change of another program.
pub(crate) fn forget(host: &mut dyn Host) {
    match host.unlink(paths::WRITTEN).and_then(|()| host.remove_dir(paths::RUN_DIR)) {
        Ok(_) | Err(_) => {}
    }
}
