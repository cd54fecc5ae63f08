//! The keys that a run writes to a server of the user's: looked for before, deleted afterwards.

use std::ops::Range;

use anyhow::anyhow;

use crate::plan::rows::{Common, Row};
use crate::record::ServerOrigin;
use crate::server::{Backend, Place, Servers};
use crate::strategy::contract::Keys;

use super::{Code, CommandError, WithCode, warn};

/// Keys whose names are in memory at once when they are deleted.
const KEYS_AT_ONCE: u64 = 10_000;

/// The servers of the user's that are to be cleaned up after the run.
///
/// # Errors
/// One that holds keys that the run would write.
pub(super) fn to_clean(servers: &mut Servers, keys: &[Keys]) -> Result<Vec<Place>, CommandError> {
    let mut places = Vec::new();
    for (place, server) in servers.iter_mut() {
        if server.info().origin != ServerOrigin::External {
            continue;
        }
        let mut may_go = true;
        for keys in keys {
            may_go = spare_others(server, keys)? && may_go;
        }
        if may_go {
            places.push(place);
        }
    }
    Ok(places)
}

/// The keys that rows write, each set of names once.
pub(super) fn keys_of(rows: &[Row], common: &Common) -> Vec<Keys> {
    let mut all: Vec<Keys> = Vec::new();
    for keys in rows.iter().map(|row| row.keys(common)) {
        if !all.iter().any(|other| other.prefix == keys.prefix) {
            all.push(keys);
        }
    }
    all
}

/// Removes what the workers have written from servers of the user's.
pub(super) fn clean_up(servers: &mut Servers, places: &[Place], keys: &[Keys]) {
    for place in places {
        if let Some(server) = servers.get_mut(*place) {
            for keys in keys {
                delete_written(server, keys);
            }
        }
    }
}

/// Makes sure that a server of the user's holds none of the keys that the run will write. Returns whether
/// they may be deleted afterwards: not when nobody can see whose they are.
fn spare_others(server: &mut Backend, keys: &Keys) -> Result<bool, CommandError> {
    let mut first = 0;
    while first < keys.count {
        let last = keys.count.min(first + KEYS_AT_ONCE);
        match server.existing_keys(&written_keys(keys, first..last)) {
            Ok(None) => return Ok(false),
            Ok(Some(0)) => {}
            Ok(Some(found)) => {
                let prefix = crate::units::escape(&keys.prefix, 80);
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

fn delete_written(server: &mut Backend, keys: &Keys) {
    let mut first = 0;
    while first < keys.count {
        let last = keys.count.min(first + KEYS_AT_ONCE);
        if let Err(error) = server.delete_keys(&written_keys(keys, first..last)) {
            warn(&format!(
                "systally: the keys of this run are still on the server: {error}"
            ));
            return;
        }
        first = last;
    }
}

/// Keys that the workers may have written, of these numbers: values, and the counters of `incr`.
fn written_keys(keys: &Keys, numbers: Range<u64>) -> Vec<String> {
    numbers
        .flat_map(|i| {
            let key = keys.key(i);
            [format!("n:{key}"), key]
        })
        .collect()
}
