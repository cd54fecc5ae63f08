//! Commands about keys, whatever their value, and numbers.

use super::super::store::{AddError, Ttl, now_ms};
use super::{Call, Failure, NOT_AN_INTEGER, Outcome, SYNTAX, integer, is, shown};

pub(super) fn del(call: &mut Call<'_, '_>) -> Outcome {
    let (db, keys) = (call.session.db, call.args.from(1));
    let removed = keys.filter(|key| call.state.store.remove(db, key)).count();
    call.out.integer(count(removed));
    Ok(())
}

pub(super) fn exists(call: &mut Call<'_, '_>) -> Outcome {
    let (db, keys) = (call.session.db, call.args.from(1));
    let found = keys.filter(|key| call.state.store.get(db, key).is_some()).count();
    call.out.integer(count(found));
    Ok(())
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

pub(super) fn expire(call: &mut Call<'_, '_>) -> Outcome {
    expire_in(call, "expire", 1000)
}

pub(super) fn pexpire(call: &mut Call<'_, '_>) -> Outcome {
    expire_in(call, "pexpire", 1)
}

/// When `EXPIRE` changes anything.
#[derive(Default)]
struct ExpireOptions {
    only_without: bool,
    only_with: bool,
    only_later: bool,
    only_sooner: bool,
}

impl ExpireOptions {
    fn parse(call: &Call<'_, '_>) -> Result<ExpireOptions, Failure> {
        let mut options = ExpireOptions::default();
        for word in call.args.from(3) {
            let known = [
                ("NX", &mut options.only_without),
                ("XX", &mut options.only_with),
                ("GT", &mut options.only_later),
                ("LT", &mut options.only_sooner),
            ];
            match known.into_iter().find(|(name, _)| is(word, name)) {
                Some((_, option)) => *option = true,
                None => {
                    let mut text = b"ERR Unsupported option ".to_vec();
                    text.extend_from_slice(shown(word, 128));
                    return Err(Failure(text));
                }
            }
        }
        if options.only_without && (options.only_with || options.only_later || options.only_sooner) {
            return Err("ERR NX and XX, GT or LT options at the same time are not compatible".into());
        }
        if options.only_later && options.only_sooner {
            return Err("ERR GT and LT options at the same time are not compatible".into());
        }
        Ok(options)
    }

    /// Whether a new time takes the place of the old one; none is later than all.
    fn allow(&self, old: Option<i64>, new: i64) -> bool {
        let later = old.is_some_and(|old| new > old);
        let sooner = old.is_none_or(|old| new < old);
        !(self.only_without && old.is_some()
            || self.only_with && old.is_none()
            || self.only_later && !later
            || self.only_sooner && !sooner)
    }
}

fn expire_in(call: &mut Call<'_, '_>, command: &str, unit: i64) -> Outcome {
    let options = ExpireOptions::parse(call)?;
    let at = integer(call.args.get(2))?
        .checked_mul(unit)
        .and_then(|ms| ms.checked_add(now_ms()))
        .ok_or_else(|| Failure::from(format!("ERR invalid expire time in '{command}' command")))?;
    let (db, key) = (call.session.db, call.args.get(1));
    let exists = call.state.store.get(db, key).is_some();
    let changes = exists && options.allow(call.state.store.expires_at(db, key), at);
    if changes {
        call.state.store.expire(db, key, at);
    }
    call.out.integer(i64::from(changes));
    Ok(())
}

pub(super) fn ttl(call: &mut Call<'_, '_>) -> Outcome {
    // Rounded to the nearest second.
    ttl_in(call, |ms| ms.saturating_add(500) / 1000)
}

pub(super) fn pttl(call: &mut Call<'_, '_>) -> Outcome {
    ttl_in(call, |ms| ms)
}

fn ttl_in(call: &mut Call<'_, '_>, convert: fn(i64) -> i64) -> Outcome {
    let reply = match call.state.store.ttl(call.session.db, call.args.get(1)) {
        Ttl::NoKey => -2,
        Ttl::Forever => -1,
        Ttl::Ms(ms) => convert(ms),
    };
    call.out.integer(reply);
    Ok(())
}

pub(super) fn incr(call: &mut Call<'_, '_>) -> Outcome {
    add(call, 1)
}

pub(super) fn decr(call: &mut Call<'_, '_>) -> Outcome {
    add(call, -1)
}

pub(super) fn incrby(call: &mut Call<'_, '_>) -> Outcome {
    let by = integer(call.args.get(2))?;
    add(call, by)
}

pub(super) fn decrby(call: &mut Call<'_, '_>) -> Outcome {
    let by = integer(call.args.get(2))?;
    let by = by.checked_neg().ok_or("ERR decrement would overflow")?;
    add(call, by)
}

fn add(call: &mut Call<'_, '_>, by: i64) -> Outcome {
    match call.state.store.add(call.session.db, call.args.get(1), by) {
        Ok(sum) => {
            call.out.integer(sum);
            Ok(())
        }
        Err(AddError::NotAnInteger) => Err(NOT_AN_INTEGER.into()),
        Err(AddError::Overflow) => Err("ERR increment or decrement would overflow".into()),
    }
}

pub(super) fn dbsize(call: &mut Call<'_, '_>) -> Outcome {
    call.out.integer(count(call.state.store.len(call.session.db)));
    Ok(())
}

pub(super) fn flushdb(call: &mut Call<'_, '_>) -> Outcome {
    check_flush(call)?;
    call.state.store.clear(call.session.db);
    call.out.simple("OK");
    Ok(())
}

pub(super) fn flushall(call: &mut Call<'_, '_>) -> Outcome {
    check_flush(call)?;
    call.state.store.clear_all();
    call.out.simple("OK");
    Ok(())
}

/// Both ways of flushing are the same here.
fn check_flush(call: &Call<'_, '_>) -> Outcome {
    let known = match call.args.len() {
        1 => true,
        2 => is(call.args.get(1), "SYNC") || is(call.args.get(1), "ASYNC"),
        _ => false,
    };
    if known { Ok(()) } else { Err(SYNTAX.into()) }
}
