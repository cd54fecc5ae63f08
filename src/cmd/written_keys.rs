//! The keys that a run writes to a server of the user's: looked for before, deleted afterwards.

use std::ops::Range;

use anyhow::anyhow;

use crate::plan::rows::Common;
use crate::record::ServerOrigin;
use crate::server::{Backend, Place, Servers};

use super::{Code, CommandError, WithCode, warn};

/// Keys whose names are in memory at once when they are deleted.
const KEYS_AT_ONCE: u64 = 10_000;

/// The servers of the user's that are to be cleaned up after the run.
///
/// # Errors
/// One that holds keys that the run would write.
pub(super) fn to_clean(servers: &mut Servers, common: &Common) -> Result<Vec<Place>, CommandError> {
    let mut places = Vec::new();
    for (place, server) in servers.iter_mut() {
        if server.info().origin == ServerOrigin::External && spare_others(server, common)? {
            places.push(place);
        }
    }
    Ok(places)
}

/// Removes what the workers have written from servers of the user's.
pub(super) fn clean_up(servers: &mut Servers, places: &[Place], common: &Common) {
    for place in places {
        if let Some(server) = servers.get_mut(*place) {
            delete_written(server, common);
        }
    }
}

/// Makes sure that a server of the user's holds none of the keys that the run will write. Returns whether
/// they may be deleted afterwards: not when nobody can see whose they are.
fn spare_others(server: &mut Backend, common: &Common) -> Result<bool, CommandError> {
    let mut first = 0;
    while first < common.keys.count {
        let last = common.keys.count.min(first + KEYS_AT_ONCE);
        match server.existing_keys(&written_keys(common, first..last)) {
            Ok(None) => return Ok(false),
            Ok(Some(0)) => {}
            Ok(Some(found)) => {
                let prefix = crate::units::escape(&common.keys.prefix, 80);
                return Err(anyhow!(
                    "the server holds {found} keys that this run would overwrite and then delete \
                     ({prefix} or n:{prefix} and ten digits); choose other names with --key-prefix"
                ))
                .code(Code::Usage);
            }
            Err(error) => {
                warn(&format!(
                    "systally: cannot see whether the keys of this run exist already, so they stay: {error}"
                ));
                return Ok(false);
            }
        }
        first = last;
    }
    Ok(true)
}

fn delete_written(server: &mut Backend, common: &Common) {
    let mut first = 0;
    while first < common.keys.count {
        let last = common.keys.count.min(first + KEYS_AT_ONCE);
        if let Err(error) = server.delete_keys(&written_keys(common, first..last)) {
            warn(&format!(
                "systally: the keys of this run are still on the server: {error}"
            ));
            return;
        }
        first = last;
    }
}

/// Keys that the workers may have written, of these numbers: values, and the counters of `incr`.
fn written_keys(common: &Common, numbers: Range<u64>) -> Vec<String> {
    numbers
        .flat_map(|i| {
            let key = common.keys.key(i);
            [format!("n:{key}"), key]
        })
        .collect()
}
